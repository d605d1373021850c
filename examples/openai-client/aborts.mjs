// What an abort must do, wherever the work runs: two meshes are held to it.
import assert from "node:assert/strict";
import { test } from "node:test";
import { APIUserAbortError } from "openai";
import { ask, collect } from "./questions.mjs";

/** Tests that the provider sees a caller leave, whenever that is. at gives client and provider once both run. */
export function testAborts(at) {
  const took = []; // milliseconds until the provider saw it
  for (const [name, script, stream] of [
    ["before the first token of a stream, with the headers still to come", "say nothing at all", true],
    ["before the first token of a stream, after a role", "say only a role", true],
    ["before a plain answer", "say nothing at all", false],
  ]) {
    test(`aborts ${name}`, { timeout: 60_000 }, async () => {
      const { client, provider } = at();
      const abort = new AbortController();
      const asked = provider.asked(script);
      const gone = provider.gone(script);
      const request = client.chat.completions.create(ask(script, { stream }), { signal: abort.signal });
      const outcome = request.then((s) => (stream ? collect(s) : s)).catch((err) => err);
      await asked;
      const start = performance.now();
      abort.abort();
      await gone;
      took.push(performance.now() - start);
      const got = await outcome;
      assert.ok(got instanceof APIUserAbortError || got.length === 0, `the caller got ${got}`);
    });
  }

  test("aborts after the first token", { timeout: 60_000 }, async () => {
    const { client, provider } = at();
    const gone = provider.gone("stop after one word");
    const stream = await client.chat.completions.create(ask("stop after one word", { stream: true }));
    let start;
    for await (const chunk of stream) {
      if (!chunk.choices[0]?.delta?.content) continue;
      start = performance.now();
      break; // leaving the loop aborts the request
    }
    await gone;
    took.push(performance.now() - start);
  });

  test("the provider sees an abort within a second", () => {
    quick(took);
  });
}

/**
 * Holds the promise of a second. It is the program's: the machine may be busy with something
 * else for a moment, so the quickest counts, and none may take as long as a limit would.
 */
export function quick(took) {
  assert.ok(Math.min(...took) < 1000 && Math.max(...took) < 10_000, `the provider sees the close after ${took.map(Math.round)} ms`);
}
