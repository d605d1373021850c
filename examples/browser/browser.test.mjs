// A tab of a real browser joins a mesh and does its work.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { dirname } from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { binary, startMesh } from "../openai-client/mesh.mjs";
import { findChromium, startChromium } from "./chromium.mjs";
import { servePage } from "./serve.mjs";

const program = await findChromium();
const skip = program ? false : "there is no Chromium: apt-get install chromium, or set CHROMIUM";
const run = promisify(execFile);
const text = "The mesh gets work done. A mesh of devices is one mesh: the laptop, the server and the browser tab. Rain is wet. Each of the devices takes work from the mesh.";

let page, mesh, browser;

before(async () => {
  if (skip) return;
  page = await servePage(0);
  mesh = await startMesh(await readFile(new URL("catalogue.yaml", import.meta.url), "utf8"), { CHORDWHEEL_ORIGINS: page.origin });
  browser = await startChromium(program);
});

after(async () => {
  await browser?.stop();
  const code = await mesh?.stop();
  page?.close();
  if (mesh) assert.equal(code, 0, `up did not end in order:\n${mesh.log()}`);
});

async function until(what, test) {
  for (const start = performance.now(); ; ) {
    const value = await test();
    if (value) return value;
    assert.ok(performance.now() - start < 60_000, `${what}\n${mesh.log()}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

const invite = async () => JSON.parse((await run(binary, ["invite", "--dir", mesh.home, "--json"])).stdout).invitation;

async function join(tab, invitation) {
  await until("the page does not load", () => tab.run(`document.readyState === "complete" && !!document.getElementById("go")`));
  await tab.run(`document.getElementById("edge").value = ${JSON.stringify(mesh.device.edge)};
    document.getElementById("invitation").value = ${JSON.stringify(invitation)};
    document.getElementById("join").requestSubmit()`);
  await until("the page says nothing", () => tab.run(`document.body.dataset.state`));
}

async function work(primitive, body) {
  const answer = await fetch(new URL(`/api/v1/work/${primitive}`, mesh.device.edge), {
    method: "POST",
    headers: { Authorization: `Bearer ${mesh.device.key}`, "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
  return { status: answer.status, peer: answer.headers.get("x-chordwheel-peer"), ...(await answer.json()) };
}

test("a tab joins, works, shows its jobs, and is gone when it is closed", { skip }, async () => {
  const invitation = await invite();
  const tab = await browser.open(page.origin);
  await join(tab, invitation);
  await until("the tab does not come online", () => tab.run(`document.body.dataset.state === "on"`));
  const answer = await until("the tab's work is not asked for", async () => {
    const got = await work("text.keywords", { input: text, options: { count: 3 } });
    return got.status === 200 && got;
  });
  assert.deepEqual(answer.output, ["mesh", "devices", "work"]);
  assert.equal(answer.option, "peer");
  assert.equal(answer.peer, "providers");
  assert.match((await work("text.summarise", { input: text, options: { sentences: 1 } })).output, /^A mesh of devices is one mesh/);
  await until("the page does not show its jobs as done", () => tab.run(`document.querySelectorAll("#jobs li.done").length === 2`));
  assert.match(await tab.run(`document.querySelector("#jobs li:last-child").innerText`), /text\.keywords[\s\S]*done[\s\S]*mesh, devices, work/);
  if (process.env.PICTURE) await writeFile(process.env.PICTURE, await tab.picture());

  const { jobs } = JSON.parse((await run(binary, ["jobs", "--dir", mesh.device.data_dir, "--json"])).stdout);
  assert.deepEqual(jobs.map((job) => [job.role, job.state, job.primitive]), [["provided", "done", "text.summarise"], ["provided", "done", "text.keywords"]]);

  // The input is no text: the page says so, and the caller is told that nobody did it.
  const failed = await work("text.keywords", { input: 7 });
  assert.equal(failed.status, 502, JSON.stringify(failed));

  const again = await browser.open(page.origin);
  await join(again, invitation);
  assert.match(await again.run(`document.getElementById("state").innerText`), /used up/);
  await again.close();

  await tab.close();
  await until("a closed tab is still given work", async () => (await work("text.summarise", { input: text })).status === 503);
});
