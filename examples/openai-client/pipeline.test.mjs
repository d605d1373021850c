// The openai package at device a, whose pipeline has devices b and c do parts of it.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import OpenAI, { APIUserAbortError } from "openai";
import { quick } from "./aborts.mjs";
import { startMesh } from "./mesh.mjs";
import { startProvider } from "./provider.mjs";
import { ask, collect, textOf } from "./questions.mjs";

const hard =
  "Compare three database engines for a small web shop. First, list their licences. Second, weigh their cost and risk against " +
  "each other. Third, design a migration plan with a rollback for each step, and finally recommend one and justify the trade-offs.";

const providers = {};
let mesh, client;

before(async () => {
  for (const name of ["a", "b", "c"]) providers[name] = await startProvider(name);
  const box = (name, primitives) => `pipeline: {enabled: true}
adapters:
  - name: box${name}
    adapter: openai
    endpoint: ${providers[name].url}
    models: [{name: m${name}, primitives: [${primitives}], limits: {first_output: 20s, idle: 20s, total: 60s}}]
`;
  const primitive = (name) => `  - {name: ${name}, default: [local, peer], peer: {requires: ["execute:${name}"], tries: 2}}\n`;
  mesh = await startMesh("primitives:\n" + ["llm.chat", "llm.t1", "llm.t2", "llm.t3"].map(primitive).join(""), {}, {
    a: box("a", "llm.chat, llm.t3"),
    b: box("b", "llm.t1, llm.t2"),
    c: box("c", "llm.t1, llm.t2"),
  });
  client = new OpenAI({ baseURL: mesh.device.edge, apiKey: mesh.device.key, maxRetries: 0 });
  for (const start = performance.now(); ; ) {
    const { options } = await mesh.tell("chain", "show", "workspace:home", "llm.t2").catch(() => ({ options: [] }));
    const ready = (options ?? []).flatMap((o) => o.peers ?? []).filter((p) => p.eligible);
    if (ready.length === 2) break;
    assert.ok(performance.now() - start < 30_000, `a never meets b and c:\n${mesh.log()}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
});

after(async () => {
  const code = await mesh?.stop();
  for (const p of Object.values(providers)) p.close();
  assert.equal(code, 0, `up did not end in order:\n${mesh?.log()}`);
});

test("an easy question is one walk", async () => {
  const { data, response } = await client.chat.completions.create(ask("count to five")).withResponse();
  assert.equal(data.choices[0].message.content, "one two three four five");
  assert.match(response.headers.get("x-chordwheel-complexity"), /^simple/);
  assert.equal(response.headers.get("x-chordwheel-job"), null);
});

test("a hard question is worked on by at least two devices", async () => {
  const { data, response } = await client.chat.completions.create(ask(hard)).withResponse();
  assert.equal(data.object, "chat.completion");
  assert.equal(data.model, "auto");
  assert.equal(data.choices[0].finish_reason, "stop");
  assert.ok(data.choices[0].message.content);
  assert.equal(response.headers.get("x-chordwheel-option"), "pipeline");
  const { jobs } = await mesh.tell("jobs", "show", response.headers.get("x-chordwheel-job"));
  const on = new Set(jobs.filter((j) => j.role !== "root" && j.state === "done").map((j) => j.device ?? "a"));
  assert.ok(on.has("a") && on.size >= 2, `it ran on ${[...on]}`);
  assert.equal(data.usage.total_tokens, 12 * (jobs.length - 1), "usage is the sum over the jobs");
});

test("streams, with progress as reasoning and usage for a caller who asks", async () => {
  const chunks = await collect(
    await client.chat.completions.create(ask(hard, { stream: true, stream_options: { include_usage: true } }), { headers: { "X-Chordwheel-Progress": "reasoning" } }),
  );
  assert.ok(textOf(chunks));
  assert.match(chunks.map((c) => c.choices[0]?.delta?.reasoning_content ?? "").join(""), /2 of 2 parts ended/);
  assert.ok(chunks.at(-1).usage.total_tokens > 0);
  const quiet = await collect(await client.chat.completions.create(ask(hard, { stream: true })));
  assert.ok(textOf(quiet) && quiet.every((c) => !c.usage && !c.choices[0]?.delta?.reasoning_content));
});

test("an abort reaches every model that works on it", { timeout: 120_000 }, async () => {
  // Whoever gets a part of this says nothing, and waits.
  const question = `say nothing at all. ${hard}`;
  const took = [];
  for (let round = 0; round < 3; round++) {
    const abort = new AbortController();
    const silent = ["b", "c"].map((name) => providers[name].hold());
    const request = client.chat.completions.create(ask(question), { signal: abort.signal }).catch((err) => err);
    await Promise.race(silent.map((s) => s.asked));
    const start = performance.now();
    abort.abort();
    await Promise.race(silent.map((s) => s.gone));
    took.push(performance.now() - start);
    assert.ok((await request) instanceof APIUserAbortError);
    for (const s of silent) s.release();
    for (const end = performance.now() + 30_000; ; ) {
      const { jobs } = await mesh.tell("jobs");
      if (jobs[0].state === "cancelled") break;
      assert.ok(performance.now() < end, `the request is ${jobs[0].state}`);
    }
  }
  quick(took);
});
