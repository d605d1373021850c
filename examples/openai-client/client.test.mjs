// The openai package against a real edge, a real hub and a scripted provider.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import OpenAI, { APIError, AuthenticationError, NotFoundError, UnprocessableEntityError } from "openai";
import { testAborts } from "./aborts.mjs";
import { startMesh } from "./mesh.mjs";
import { startProvider } from "./provider.mjs";
import { ask, calls, collect, textOf, tools } from "./questions.mjs";

let first, second, mesh, client;

before(async () => {
  first = await startProvider("first");
  second = await startProvider("second");
  mesh = await startMesh(
    `providers:
  - name: first
    adapter: openai
    endpoint: ${first.url}
    keys: [first]
    models:
      - name: small
        primitives: [llm.chat]
        context: 8192
        limits: {first_output: 20s, idle: 20s, total: 60s}
      - name: team/vision:7b
        primitives: [llm.chat]
        context: 8192
  - name: second
    adapter: openai
    endpoint: ${second.url}
    models:
      - name: spare
        primitives: [llm.chat]
        context: 8192
primitives:
  - name: llm.chat
    order: fixed
    default: [first/small, first/team/vision:7b, second/spare]
workspaces:
  - id: home
    keys: [first]
`,
    { CHORDWHEEL_KEY_FIRST: "the-key-of-first" },
  );
  // The client's own retries would hide what the edge does.
  client = new OpenAI({ baseURL: mesh.device.edge, apiKey: mesh.device.key, maxRetries: 0 });
});

after(async () => {
  const code = await mesh?.stop();
  first?.close();
  second?.close();
  assert.equal(code, 0, `up did not end in order:\n${mesh?.log()}`);
});

test("lists models", async () => {
  const models = [];
  for await (const model of client.models.list()) models.push(model);
  const auto = models.find((m) => m.id === "auto");
  assert.equal(auto?.object, "model");
  assert.equal(auto.owned_by, "chordwheel");
  assert.ok(Number.isInteger(auto.created) && auto.created > 1_700_000_000, "created is when the chain was issued");
});

test("answers plainly", async () => {
  const { data, response } = await client.chat.completions.create(ask("count to five")).withResponse();
  assert.equal(data.choices[0].message.content, "one two three four five");
  assert.equal(data.choices[0].finish_reason, "stop");
  assert.equal(data.model, "auto", "the name that was asked for");
  assert.equal(data.usage.total_tokens, 12);
  assert.equal(response.headers.get("x-chordwheel-option"), "first/small");
  assert.equal(response.headers.get("x-chordwheel-attempts"), "1");
  assert.ok(response.headers.get("x-chordwheel-request-id"));
});

test("streams", async () => {
  const stream = await client.chat.completions.create(ask("count to five", { stream: true }));
  const chunks = await collect(stream);
  assert.equal(textOf(chunks), "one two three four five");
  assert.equal(chunks.filter((c) => c.choices[0]?.delta?.content).length, 5, "one event per event of the provider");
  assert.equal(chunks.at(-1).choices[0].finish_reason, "stop", "no usage chunk for a caller who did not ask");
  assert.ok(chunks.every((c) => c.model === "auto" && c.object === "chat.completion.chunk"));
});

test("streams usage to a caller who asks", async () => {
  const chunks = await collect(await client.chat.completions.create(ask("count to five", { stream: true, stream_options: { include_usage: true } })));
  assert.deepEqual(chunks.at(-1).choices, []);
  assert.equal(chunks.at(-1).usage.total_tokens, 12);
});

test("passes on what it does not know, and no secret of the caller", async () => {
  const content = [
    { type: "text", text: "count to five" },
    { type: "image_url", image_url: { url: "data:image/png;base64,iVBORw0KGgo=" } },
  ];
  await client.chat.completions.create(ask(content, { a_field_of_tomorrow: { deep: [1, null] }, temperature: 0.25 }));
  const { headers, body } = first.last();
  assert.deepEqual(body.messages, [{ role: "user", content }]);
  assert.deepEqual(body.a_field_of_tomorrow, { deep: [1, null] });
  assert.equal(body.temperature, 0.25);
  assert.equal(body.model, "small", "each option gets its own model's name");
  assert.equal(headers.authorization, "Bearer the-key-of-first");
  assert.ok(!JSON.stringify(headers).includes(mesh.device.key));
});

test("calls tools, two at once, plainly", async () => {
  const question = ask("call two tools", { tools, parallel_tool_calls: true });
  const { choices } = await client.chat.completions.create(question);
  assert.equal(choices[0].finish_reason, "tool_calls");
  assert.equal(choices[0].message.content, null);
  assert.deepEqual(choices[0].message.tool_calls, calls);

  const results = choices[0].message.tool_calls.map((c) => ({ role: "tool", tool_call_id: c.id, content: "31C" }));
  const end = await client.chat.completions.create({ ...question, messages: [...question.messages, choices[0].message, ...results] });
  assert.equal(end.choices[0].message.content, "call_a=31C call_b=31C");
});

test("calls tools, two at once, streamed", async () => {
  const final = await client.chat.completions.stream(ask("call two tools", { tools })).finalChatCompletion();
  assert.equal(final.choices[0].finish_reason, "tool_calls");
  assert.deepEqual(final.choices[0].message.tool_calls.map(({ id, function: f }) => [id, f.name, f.arguments]), [
    ["call_a", "weather", '{"city":"Pune"}'],
    ["call_b", "weather", '{"city":"Kochi"}'],
  ]);
});

test("runs tools through the package's own loop", async () => {
  const cities = [];
  const weather = {
    type: "function",
    function: { name: "weather", parameters: tools[0].function.parameters, parse: JSON.parse, function: ({ city }) => (cities.push(city), `${city} 31C`) },
  };
  const runner = client.chat.completions.runTools(ask("call two tools", { tools: [weather], stream: true }));
  assert.equal(await runner.finalContent(), "call_a=Pune 31C call_b=Kochi 31C");
  assert.deepEqual(cities, ["Pune", "Kochi"]);
});

testAborts(() => ({ client, provider: first }));

test("aborts leave the option's standing untouched", async () => {
  const { response } = await client.chat.completions.create(ask("count to five")).withResponse();
  assert.equal(response.headers.get("x-chordwheel-option"), "first/small");
});

test("reaches a model whose id has slashes and a colon", async () => {
  const { data, response } = await client.chat.completions.create(ask("count to five", { model: "team/vision:7b" })).withResponse();
  assert.equal(data.model, "team/vision:7b");
  assert.equal(first.last().body.model, "team/vision:7b");
  assert.equal(response.headers.get("x-chordwheel-option"), "first/team/vision:7b");
});

test("maps an unknown model to NotFoundError", async () => {
  const err = await client.chat.completions.create(ask("hi", { model: "team/none" })).catch((e) => e);
  assert.ok(err instanceof NotFoundError, String(err));
  assert.equal(err.code, "model_not_found");
});

test("maps a wrong key to AuthenticationError", async () => {
  const stranger = new OpenAI({ baseURL: mesh.device.edge, apiKey: "not-the-key", maxRetries: 0 });
  const err = await stranger.chat.completions.create(ask("hi")).catch((e) => e);
  assert.ok(err instanceof AuthenticationError, String(err));
  assert.equal(err.code, "unauthorized");
  assert.equal(err.type, "authentication_error");
});

test("passes the provider's complaint about the request on", async () => {
  const err = await client.chat.completions.create(ask("refuse my request")).catch((e) => e);
  assert.ok(err instanceof UnprocessableEntityError, String(err));
  assert.match(err.message, /temperature is out of range/);
});

test("has one shape for every error", async () => {
  const headers = { Authorization: `Bearer ${mesh.device.key}`, "Content-Type": "application/json" };
  const at = (path, init) => fetch(mesh.device.edge + path, { ...init, headers: { ...headers, ...init?.headers } });
  for (const [name, status, code, res] of [
    ["an unknown path", 404, "not_found", await at("/embeddings", { method: "POST", body: "{}" })],
    ["a wrong method", 405, "method_not_allowed", await at("/chat/completions")],
    ["broken JSON", 400, "invalid_request", await at("/chat/completions", { method: "POST", body: "{" })],
    ["no messages", 400, "invalid_request", await at("/chat/completions", { method: "POST", body: '{"model":"auto"}' })],
    ["no JSON at all", 415, "unsupported_media_type", await at("/chat/completions", { method: "POST", body: "hi", headers: { "Content-Type": "text/plain" } })],
    ["no key", 401, "unauthorized", await at("/models", { headers: { Authorization: "" } })],
  ]) {
    assert.equal(res.status, status, name);
    const { error } = await res.json();
    assert.equal(error.code, code, name);
    for (const member of ["message", "type", "request_id"]) assert.equal(typeof error[member], "string", `${name}: ${member}`);
  }
});

// The tests below make options cool down: they come last, in this order.

test("ends a stream that breaks with an error, not with another option's text", async () => {
  const stream = await client.chat.completions.create(ask("break after two words", { stream: true, model: "team/vision:7b" }));
  let text = "";
  const err = await (async () => {
    for await (const chunk of stream) text += chunk.choices[0]?.delta?.content ?? "";
  })().catch((e) => e);
  assert.equal(text, "one two");
  assert.ok(err instanceof APIError, `a broken stream ended with ${err}`);
});

test("fails over to the next option", async () => {
  const { data, response } = await client.chat.completions.create(ask("be down")).withResponse();
  assert.equal(data.choices[0].message.content, "one two three four five");
  assert.equal(response.headers.get("x-chordwheel-option"), "second/spare");
  assert.equal(second.last().headers.authorization, undefined, "a key goes to its own provider only");
});
