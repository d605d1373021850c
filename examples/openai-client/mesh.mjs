// Starts a hub and devices for a test, in a folder of their own.
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

export const binary = process.env.CHORDWHEEL_BINARY ?? fileURLToPath(new URL("../../bin/chordwheel", import.meta.url));

/**
 * Starts `chordwheel up` with a catalogue. configs holds the config.yaml of each device, a,
 * b, c… Returns the devices, the first of them, and how to stop all.
 */
export async function startMesh(catalogue, env, configs = { a: "" }) {
  const home = await mkdtemp(join(tmpdir(), "chordwheel-e2e-"));
  const file = join(home, "catalogue.yaml");
  await writeFile(file, catalogue);
  for (const [name, text] of Object.entries(configs)) {
    await mkdir(join(home, "up", name), { recursive: true, mode: 0o700 });
    await writeFile(join(home, "up", name, "config.yaml"), text, { mode: 0o600 });
  }
  const child = spawn(binary, ["up", "--devices", String(Object.keys(configs).length), "--dir", join(home, "up"), "--catalog", file, "--json"], {
    env: { ...process.env, CHORDWHEEL_DEVICE_ID_FILE: join(home, "device-id"), CHORDWHEEL_BUILTIN: "false", ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let log = "";
  child.stderr.on("data", (piece) => (log = (log + piece).slice(-20_000)));
  const ended = once(child, "exit");
  const stop = async () => {
    child.kill("SIGTERM");
    const [code] = await ended;
    await rm(home, { recursive: true, force: true });
    return code;
  };
  const ready = await Promise.race([
    once(createInterface({ input: child.stdout }), "line").then(([line]) => line),
    ended.then(([code]) => {
      throw new Error(`${binary} up ended with ${code} before it was ready:\n${log}`);
    }),
  ]);
  const { devices } = JSON.parse(ready);
  /** What a command says about the first device, as JSON. */
  const tell = (...args) =>
    new Promise((resolve, reject) =>
      execFile(binary, [...args, "--dir", join(home, "up"), "--json"], (err, out) => (err ? reject(err) : resolve(JSON.parse(out)))),
    );
  return { home: join(home, "up"), devices, device: devices[0], stop, tell, log: () => log };
}
