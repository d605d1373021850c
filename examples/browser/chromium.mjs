// Drives a headless Chromium over the DevTools protocol, on two pipes: no package and no
// port is needed for that.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { access, constants, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";

/** Gives the path of a browser: CHROMIUM, or one of the usual names in PATH. "" if there is none. */
export async function findChromium() {
  if (process.env.CHROMIUM) return process.env.CHROMIUM;
  for (const name of ["chromium", "chromium-browser", "google-chrome", "chrome"])
    for (const folder of (process.env.PATH ?? "").split(delimiter)) {
      const file = join(folder, name);
      if (await access(file, constants.X_OK).then(() => true, () => false)) return file;
    }
  return "";
}

/** Starts a browser. open(url) gives a tab with run(expression), which awaits promises, and close(). */
export async function startChromium(program) {
  const home = await mkdtemp(join(tmpdir(), "chordwheel-chromium-"));
  const flags = ["--headless=new", "--remote-debugging-pipe", `--user-data-dir=${home}`, "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage", "--disable-extensions", "--disable-background-networking", "--disable-sync", "--no-proxy-server"];
  if (process.getuid?.() === 0) flags.push("--no-sandbox"); // it refuses to start as root otherwise
  const child = spawn(program, flags, { stdio: ["ignore", "ignore", "pipe", "pipe", "pipe"] });
  let log = "";
  child.stderr.on("data", (piece) => (log = (log + piece).slice(-8_000)));
  const ended = once(child, "exit");
  const [, , , to, from] = child.stdio;
  const waiting = new Map();
  let last = 0, rest = "";
  from.setEncoding("utf8").on("data", (piece) => {
    const messages = (rest + piece).split("\0");
    rest = messages.pop();
    for (const { id, result, error } of messages.map((m) => JSON.parse(m))) {
      const settle = waiting.get(id);
      waiting.delete(id);
      if (error) settle?.reject(new Error(error.message));
      else settle?.resolve(result);
    }
  });
  to.on("error", () => {}); // it is gone: every call says so
  ended.then(() => waiting.forEach(({ reject }) => reject(new Error(`the browser ended:\n${log}`))));
  const send = (method, params = {}, sessionId) =>
    new Promise((resolve, reject) => {
      waiting.set(++last, { resolve, reject });
      to.write(`${JSON.stringify({ id: last, method, params, sessionId })}\0`);
    });
  const open = async (url) => {
    const { targetId } = await send("Target.createTarget", { url });
    const { sessionId } = await send("Target.attachToTarget", { targetId, flatten: true });
    const run = async (expression) => {
      const { result, exceptionDetails } = await send("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true }, sessionId);
      if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
      return result.value;
    };
    return { run, close: () => send("Target.closeTarget", { targetId }), picture: async () => Buffer.from((await send("Page.captureScreenshot", {}, sessionId)).data, "base64") };
  };
  const stop = async () => {
    send("Browser.close").catch(() => {});
    const late = setTimeout(() => child.kill("SIGKILL"), 5_000);
    await ended;
    clearTimeout(late);
    await rm(home, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
  };
  await send("Browser.getVersion");
  return { open, stop };
}
