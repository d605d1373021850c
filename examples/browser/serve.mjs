// Serves the page of this folder on http://127.0.0.1:8080, or on the port that is given.
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { fileURLToPath } from "node:url";

const page = new URL("index.html", import.meta.url);

/** Starts the server and gives its origin, and how to stop it. */
export async function servePage(port) {
  const server = createServer(async (request, response) => {
    if (request.url !== "/" || request.method !== "GET") return response.writeHead(404).end();
    response.writeHead(200, { "Content-Type": "text/html; charset=utf-8", "Cache-Control": "no-store" }).end(await readFile(page));
  });
  await new Promise((resolve, reject) => server.once("error", reject).listen(port, "127.0.0.1", resolve));
  return { origin: `http://127.0.0.1:${server.address().port}`, close: () => (server.closeAllConnections(), server.close()) };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { origin } = await servePage(Number(process.argv[2] ?? 8080));
  console.log(`${origin}: start the device with CHORDWHEEL_ORIGINS=${origin}`);
}
