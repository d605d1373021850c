// The shortest program there is: any OpenAI client, pointed at the edge.
//
//   export OPENAI_BASE_URL=http://127.0.0.1:7420/v1 OPENAI_API_KEY=$(bin/chordwheel key)
//   node chat.mjs "what is a chord?"
import OpenAI from "openai";

const client = new OpenAI();
const stream = await client.chat.completions.create({
  model: "auto",
  messages: [{ role: "user", content: process.argv.slice(2).join(" ") || "what is chordwheel?" }],
  stream: true,
});
for await (const chunk of stream) process.stdout.write(chunk.choices[0]?.delta?.content ?? "");
process.stdout.write("\n");
