// Open WebUI's calls in their order, against a real edge, a real hub and a scripted provider.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";
import { startMesh } from "../openai-client/mesh.mjs";
import { startProvider } from "../openai-client/provider.mjs";

const here = import.meta.dirname ?? new URL(".", import.meta.url).pathname;
const python = spawnSync("python3", ["--version"]).status === 0 ? "python3" : "";
let provider, mesh;

before(async () => {
  provider = await startProvider("first");
  mesh = await startMesh(
    `providers:
  - name: first
    adapter: openai
    endpoint: ${provider.url}
    models:
      - {name: small, primitives: [llm.chat], context: 8192}
      - {name: large, primitives: [llm.chat], context: 8192}
primitives:
  - {name: llm.chat, order: fixed, default: [first/small, first/large]}
`,
    {},
    { a: "list_agents: true\n" },
  );
});

after(async () => {
  const code = await mesh?.stop();
  provider?.close();
  assert.equal(code, 0, `up did not end in order:\n${mesh?.log()}`);
});

const call = (path, body, key = mesh.device.key) =>
  fetch(mesh.device.edge + path, {
    method: body ? "POST" : "GET",
    headers: { Authorization: `Bearer ${key}`, ...(body && { "Content-Type": "application/json" }) },
    body: body && JSON.stringify(body),
  });

/** The receipts that are on disk. */
async function receipts() {
  const text = await readFile(join(mesh.device.data_dir, "spool.jsonl"), "utf8");
  return text.split("\n").filter(Boolean).map((line) => JSON.parse(line));
}

const messages = [{ role: "user", content: "count to five" }];

const oddities = [];

/** An edge that is none: it answers with text, or, without one, with a blank now and then for ever. */
async function oddEdge(text) {
  const server = createServer((request, response) => {
    request.resume();
    response.writeHead(200, { "Content-Type": "application/json" });
    if (text) return response.end(text);
    const timer = setInterval(() => response.write(" "), 50);
    response.on("close", () => clearInterval(timer));
  });
  oddities.push(server);
  await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
  return `http://127.0.0.1:${server.address().port}/v1`;
}

test("lists models, as the model picker does", async () => {
  const { data } = await (await call("/models")).json();
  assert.deepEqual(data.map((m) => m.id), ["auto", "first/small", "first/large"]);
});

test("inlet, chat, outlet", async () => {
  const before = (await receipts()).length;
  const inlet = await (await call("/inlet", { mode: "auto", model: "auto", messages })).json();
  assert.equal(inlet.agent_model_id, "first/small");
  assert.equal(inlet.selection_method, "fallback-default");
  assert.match(inlet.request_hash, /^sha256:[0-9a-f]{64}$/);
  assert.match(inlet.transaction_id, /^[A-Za-z0-9_-]{75}$/);

  const chat = await call("/chat/completions", { model: inlet.agent_model_id, stream: true, messages, transaction_id: inlet.transaction_id });
  assert.equal(chat.headers.get("x-chordwheel-selection"), "direct");
  const text = [...(await chat.text()).matchAll(/^data: (\{.*)$/gm)].map(([, d]) => JSON.parse(d).choices[0]?.delta?.content ?? "").join("");
  assert.equal(text, "one two three four five");

  const report = { ...inlet, response: text, status: "ok" };
  for (let i = 0; i < 2; i++) {
    const outlet = await call("/outlet", report);
    assert.equal(outlet.status, 200);
    assert.deepEqual(await outlet.json(), { ack: true, transaction_id: inlet.transaction_id });
  }
  const all = (await receipts()).slice(before);
  const kept = all.filter((r) => r.transaction_id === inlet.transaction_id);
  assert.deepEqual([all.length, kept.length], [1, 1], "chat and outlet of one transaction leave one receipt");
  assert.match(kept[0].request_hash, /^sha256:[0-9a-f]{64}$/);
  assert.ok(!JSON.stringify(provider.requests.at(-1)).includes("transaction_id"), "the provider sees no member of ours");
  assert.equal(kept[0].status, "ok");
  assert.ok(!JSON.stringify(kept).includes("three"), "no content on disk");
});

test("inlet and outlet of a chat that goes elsewhere", async () => {
  const inlet = await (await call("/inlet", { mode: "direct", model: "first/large", messages })).json();
  const outlet = await call("/outlet", { ...inlet, response: "words", status: "ok" });
  assert.equal(outlet.status, 200);
  const [kept] = (await receipts()).filter((r) => r.transaction_id === inlet.transaction_id);
  assert.equal(kept.request_hash, inlet.request_hash);
});

test("an outlet is taken however it is", async () => {
  const outlet = await call("/outlet", { response: "words", status: "great" });
  assert.equal(outlet.status, 200);
  const { transaction_id } = await outlet.json();
  assert.match(transaction_id, /^unlinked-/);
  assert.ok((await receipts()).some((r) => r.transaction_id === transaction_id));
});

test("errors have one shape", async () => {
  for (const [response, status, code] of [
    [await call("/inlet", { mode: "auto", messages }, "wrong"), 401, "unauthorized"],
    [await call("/inlet", { mode: "sideways", messages }), 400, "invalid_request"],
    [await call("/inlet", { mode: "direct", model: "nobody", messages }), 404, "model_not_found"],
    [await call("/inlets", {}), 404, "not_found"],
    [await call("/inlet"), 405, "method_not_allowed"],
  ]) {
    assert.equal(response.status, status);
    const { error } = await response.json();
    assert.equal(error.code, code);
    assert.equal(error.request_id, response.headers.get("x-chordwheel-request-id"));
  }
});

test("the filter, as Open WebUI loads it", { skip: python ? false : "there is no python3", timeout: 60_000 }, async () => {
  const child = spawn(python, ["-B", join(here, "play.py")], { cwd: here, stdio: ["pipe", "pipe", "inherit"] });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const valves = { edge: mesh.device.edge, key: mesh.device.key };
  const play = async (step) => {
    child.stdin.write(JSON.stringify(step) + "\n");
    for (;;) {
      const { value, done } = await lines.next();
      assert.ok(!done, "the filter ended");
      if (value.startsWith("{")) return JSON.parse(value);
      logged.push(value);
    }
  };
  const logged = [];
  const metadata = (n) => ({ chat_id: "chat", message_id: `message-${n}` });
  const answered = [...messages, { role: "assistant", content: "one two" }];
  try {
    const before = (await receipts()).length;
    const auto = await play({ call: "inlet", valves, metadata: metadata(1), body: { model: "auto", messages, stream: true } });
    assert.equal(auto.body.model, "first/small");
    assert.match(auto.body.transaction_id, /^[A-Za-z0-9_-]{75}$/);
    const chat = await call("/chat/completions", auto.body);
    assert.equal(chat.status, 200);
    await chat.text();
    assert.deepEqual(auto.events, [{ type: "status", data: { description: "chordwheel: first/small", done: true } }]);
    await play({ call: "outlet", metadata: metadata(1), body: { model: "first/small", messages: answered, chat_id: "chat", id: "message-1" } });
    assert.equal((await receipts()).length, before + 1, "one chat, one receipt");

    const direct = await play({ call: "inlet", valves: { ...valves, carried: false }, metadata: metadata(2), body: { model: "first/large", messages } });
    assert.deepEqual(direct.body, { model: "first/large", messages }, "a chat that goes elsewhere carries nothing");
    assert.deepEqual(direct.events, [], "a status line in auto mode only");
    await play({ call: "outlet", metadata: metadata(2), body: { messages: answered } });
    assert.equal((await receipts()).length, before + 2);

    const named = await play({ call: "inlet", valves, metadata: metadata(4), body: { model: "wheel.auto", messages } });
    assert.equal(named.body.model, "wheel.first/small", "the name of a connection stays in front");
    assert.equal(named.events.length, 1);
    await play({ call: "outlet", metadata: metadata(4), body: { messages: [...messages, { role: "assistant", content: "", error: { content: "x" } }] } });
    const all = await receipts();
    assert.deepEqual([all.length, all.at(-1).status], [before + 3, "upstream_error"], "a chat that failed is reported as one");

    // What fails in the filter never reaches the user: a wrong key, an edge that is away, one
    // whose answer has no end, and one that is no edge.
    const valid = { key: mesh.device.key, timeout: 0.5 };
    const odd = [await oddEdge("<html>"), await oddEdge('{"agent_model_id": null, "transaction_id": "x"}'), await oddEdge("")];
    for (const broken of [{ key: "wrong" }, { ...valid, edge: "http://127.0.0.1:1/v1" }, ...odd.map((edge) => ({ edge }))]) {
      const body = { model: "auto", messages, stream: true };
      const left = await play({ call: "inlet", valves: broken, metadata: metadata(3), body });
      assert.deepEqual(left, { body, events: [] });
      const end = await play({ call: "outlet", metadata: metadata(3), body: { messages: answered } });
      assert.deepEqual(end.body, { messages: answered });
    }
    const nothing = await play({ call: "outlet", valves, metadata: null, body: { messages: null } });
    assert.deepEqual(nothing.body, { messages: null });
    assert.ok(logged.length >= 2 && !logged.join().includes("count to five"), logged.join("\n"));
    assert.equal((await receipts()).length, before + 3);
  } finally {
    child.stdin.end();
    oddities.forEach((server) => server.close() && server.closeAllConnections());
  }
});
