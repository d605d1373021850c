// The openai package at device a, whose work runs on device b.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import OpenAI from "openai";
import { testAborts } from "./aborts.mjs";
import { startMesh } from "./mesh.mjs";
import { startProvider, wide } from "./provider.mjs";
import { ask, calls, collect, textOf, tools } from "./questions.mjs";

let box, mesh, client;

before(async () => {
  box = await startProvider("box");
  mesh = await startMesh(
    `primitives:
  - name: llm.chat
    order: fixed
    default: [local, peer]
    peer: {requires: ["execute:llm.chat"], tries: 2}
`,
    {},
    {
      a: "",
      b: `adapters:
  - name: box
    adapter: openai
    endpoint: ${box.url}
    models: [{name: small, primitives: [llm.chat], limits: {first_output: 20s, idle: 20s, total: 60s}}]
`,
    },
  );
  client = new OpenAI({ baseURL: mesh.device.edge, apiKey: mesh.device.key, maxRetries: 0 });
  for (const start = performance.now(); ; ) {
    const met = await client.chat.completions.create(ask("count to five")).then(
      () => true,
      () => false,
    );
    if (met) break;
    assert.ok(performance.now() - start < 30_000, `a never hands work to b:\n${mesh.log()}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
});

after(async () => {
  const code = await mesh?.stop();
  box?.close();
  assert.equal(code, 0, `up did not end in order:\n${mesh?.log()}`);
});

test("runs at the peer, which the headers name", async () => {
  const { data, response } = await client.chat.completions.create(ask("count to five")).withResponse();
  assert.equal(data.choices[0].message.content, "one two three four five");
  assert.equal(data.model, "auto");
  assert.equal(data.usage.total_tokens, 12);
  assert.equal(response.headers.get("x-chordwheel-option"), "peer");
  assert.match(response.headers.get("x-chordwheel-peer"), /^b\//);
  assert.equal(response.headers.get("x-chordwheel-attempts"), "1");
});

test("streams, with usage for a caller who asks", async () => {
  const chunks = await collect(await client.chat.completions.create(ask("count to five", { stream: true, stream_options: { include_usage: true } })));
  assert.equal(textOf(chunks), "one two three four five");
  assert.equal(chunks.at(-1).usage.total_tokens, 12);
});

test("calls tools, two at once, plainly and streamed", async () => {
  const question = ask("call two tools", { tools, parallel_tool_calls: true });
  const { choices } = await client.chat.completions.create(question);
  assert.deepEqual(choices[0].message.tool_calls, calls);
  const results = calls.map((c) => ({ role: "tool", tool_call_id: c.id, content: "31C" }));
  const end = await client.chat.completions.create({ ...question, messages: [...question.messages, choices[0].message, ...results] });
  assert.equal(end.choices[0].message.content, "call_a=31C call_b=31C");

  const final = await client.chat.completions.stream(question).finalChatCompletion();
  assert.equal(final.choices[0].finish_reason, "tool_calls");
  assert.deepEqual(
    final.choices[0].message.tool_calls.map(({ id, type, function: f }) => ({ id, type, function: { name: f.name, arguments: f.arguments } })),
    calls,
  );
});

testAborts(() => ({ client, provider: box }));

test("wide characters survive a cut at every position", async () => {
  const text = textOf(await collect(await client.chat.completions.create(ask("cut wide characters", { stream: true }))));
  const pieces = Number(text.split(" ")[1]);
  assert.ok(pieces > 100, text);
  assert.equal(text, `${wide.repeat(pieces)} ${pieces}`);
});

test("ten pieces arrive as ten, each before the next is sent", { timeout: 60_000 }, async () => {
  const stream = await client.chat.completions.create(ask("ten pieces", { stream: true }));
  const got = [];
  for await (const chunk of stream) {
    const text = chunk.choices[0]?.delta?.content;
    if (!text) continue;
    got.push(text);
    box.seen(got.length); // only now the provider sends the next
  }
  assert.deepEqual(got, ["0 ", "1 ", "2 ", "3 ", "4 ", "5 ", "6 ", "7 ", "8 ", "9 "]);
});

test("aborts left the peer's standing untouched", async () => {
  const { response } = await client.chat.completions.create(ask("count to five")).withResponse();
  assert.equal(response.headers.get("x-chordwheel-attempts"), "1");
  assert.match(response.headers.get("x-chordwheel-peer"), /^b\//);
});
