// What the tests ask, and how they read the answers.
export const ask = (content, more) => ({ model: "auto", messages: [{ role: "user", content }], ...more });

export async function collect(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}

export const textOf = (chunks) => chunks.map((c) => c.choices[0]?.delta?.content ?? "").join("");

export const tools = [
  {
    type: "function",
    function: { name: "weather", parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] } },
  },
];

/** What the provider answers to "call two tools". */
export const calls = [
  { id: "call_a", type: "function", function: { name: "weather", arguments: '{"city":"Pune"}' } },
  { id: "call_b", type: "function", function: { name: "weather", arguments: '{"city":"Kochi"}' } },
];
