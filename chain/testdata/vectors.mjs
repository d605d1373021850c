// Runs the vectors beside this file without a line of the product's code: the
// rules of docs/chain.md, in JavaScript, with nothing but Node's own modules.
//
//   node chain/testdata/vectors.mjs
import { createHash, createPublicKey, verify } from "node:crypto";
import { readFileSync } from "node:fs";

const here = new URL(".", import.meta.url);
const LEEWAY = 60_000n;

class Refusal extends Error {}
const refuse = (why) => { throw new Refusal(why); };
const same = (a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)) === 0;

// --- deterministic CBOR: numbers become BigInt, maps become Map ---

function decode(bytes) {
  const [value, end] = read(Buffer.from(bytes), 0, 0);
  return end === bytes.length ? value : refuse("encoding");
}

function read(b, at, depth) {
  if (at >= b.length || depth > 16) refuse("encoding");
  const major = b[at] >> 5, low = b[at] & 31;
  at++;
  if (major === 7) {
    if (low < 20 || low > 22) refuse("encoding");
    return [[false, true, null][low - 20], at];
  }
  let n = BigInt(low);
  if (low > 23) {
    const size = { 24: 1, 25: 2, 26: 4, 27: 8 }[low] ?? refuse("encoding");
    if (at + size > b.length) refuse("encoding");
    n = BigInt("0x" + b.subarray(at, at + size).toString("hex"));
    at += size;
    if (n < (size === 1 ? 24n : 1n << BigInt(size * 4))) refuse("encoding");
  }
  if (major === 0) return [n, at];
  if (major === 1) return [-1n - n, at];
  if (major === 6 || n > BigInt(b.length - at)) refuse("encoding");
  n = Number(n);
  if (major === 2) return [b.subarray(at, at + n), at + n];
  if (major === 3) return [utf8(b.subarray(at, at + n)), at + n];
  if (major === 4) {
    const list = [];
    for (let i = 0, v; i < n; i++) { [v, at] = read(b, at, depth + 1); list.push(v); }
    return [list, at];
  }
  const map = new Map();
  for (let i = 0, last = null, v; i < n; i++) {
    if (at >= b.length || b[at] >> 5 !== 3) refuse("encoding");
    const [key, after] = read(b, at, depth + 1);
    const raw = b.subarray(at, after);
    if (last && Buffer.compare(last, raw) >= 0) refuse("encoding");
    last = raw;
    [v, at] = read(b, after, depth + 1);
    map.set(key, v);
  }
  return [map, at];
}

function utf8(b) {
  try { return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(b); } catch { return refuse("encoding"); }
}

// get takes a field of a type; an absent one, or null, is the type's zero.
function get(map, key, type) {
  const zero = { int: 0n, uint: 0n, text: "", bytes: Buffer.alloc(0), list: [], map: new Map() }[type];
  const v = map.get(key) ?? zero;
  const fits = { int: typeof v === "bigint", uint: typeof v === "bigint" && v >= 0n, text: typeof v === "string", bytes: Buffer.isBuffer(v),
    list: Array.isArray(v), map: v instanceof Map }[type];
  return fits ? v : refuse("encoding");
}

// --- the signed envelope of libp2p: a protobuf message ---

function varint(n) {
  const out = [];
  for (; n > 127; n = Math.floor(n / 128)) out.push((n % 128) | 128);
  return Buffer.from([...out, n]);
}

const field = (number, b) => Buffer.concat([Buffer.from([number << 3 | 2]), varint(b.length), b]);

function open(domain, envelope, pinned) {
  const parts = {};
  for (let at = 0; at < envelope.length;) {
    const tag = envelope[at++];
    let n = 0, scale = 1, byte;
    do { byte = envelope[at++]; n += (byte & 127) * scale; scale *= 128; } while (byte > 127);
    if ((tag & 7) !== 2 || !(at + n <= envelope.length)) refuse("encoding");
    parts[tag >> 3] = envelope.subarray(at, at += n);
  }
  const { 1: key, 2: type, 3: payload, 5: signature } = parts;
  if (!key || !type || !payload || !signature) refuse("encoding");
  if (!same(Buffer.concat([field(1, key), field(2, type), field(3, payload), field(5, signature)]), envelope)) refuse("encoding");
  if (key.length !== 36 || !same(key.subarray(0, 4), [8, 1, 18, 32])) refuse("signer"); // not Ed25519
  if (!same(type, Buffer.from("/" + domain))) refuse("domain");
  const signed = Buffer.concat([Buffer.from(domain), type, payload].flatMap((b) => [varint(b.length), b]));
  const spki = Buffer.concat([Buffer.from("302a300506032b6570032100", "hex"), key.subarray(4)]);
  if (!verify(null, signed, createPublicKey({ key: spki, format: "der", type: "spki" }), signature)) refuse("signature");
  if (base58(Buffer.concat([Buffer.from([0, 36]), key])) !== pinned) refuse("signer");
  return decode(payload);
}

function base58(b) {
  const alphabet = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
  let n = BigInt("0x" + b.toString("hex")), out = "";
  for (; n > 0n; n /= 58n) out = alphabet[Number(n % 58n)] + out;
  for (const byte of b) { if (byte) break; out = "1" + out; }
  return out;
}

// --- addresses ---

const address = (b) => Buffer.concat([Buffer.from([1, 0x71, 0x12, 32]), createHash("sha256").update(b).digest()]);

function base32(b) {
  const alphabet = "abcdefghijklmnopqrstuvwxyz234567";
  const bits = [...b].map((x) => x.toString(2).padStart(8, "0")).join("");
  return "b" + bits.match(/.{1,5}/g).map((five) => alphabet[parseInt(five.padEnd(5, "0"), 2)]).join("");
}

function cidField(map, key) {
  const b = get(map, key, "bytes");
  if (b.length !== 0 && (b.length !== 36 || !same(b.subarray(0, 4), [1, 0x71, 0x12, 32]))) refuse("encoding");
  return b.length === 0 ? "" : base32(b);
}

// --- content ---

const NAME = /^[^\u0000-\u0020\u007f-\u00a0\u00ad\u061c\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff\ufffd\u{e0000}-\u{e0fff}]+$/u;
const isName = (s) => NAME.test(s) && Buffer.byteLength(s) <= 256;
const YEAR = 366n * 24n * 3600n * 1000n;

function checkOptions(options) {
  if (options.length < 1 || options.length > 256) refuse("content");
  const seen = new Set();
  for (const o of options) {
    if (!(o instanceof Map)) refuse("encoding");
    const id = get(o, "id", "text"), kind = get(o, "kind", "text"), data = get(o, "data", "text");
    const cost = get(o, "cost", "map"), limits = get(o, "limits", "map");
    const within = (map, keys, most) => keys.every((k) => { const n = get(map, k, "int"); return n >= 0n && n <= most; });
    if (!isName(id) || !isName(kind) || seen.has(id)) refuse("content");
    if (!["", "local-only"].includes(data) || (kind === "peer" && data === "local-only")) refuse("content");
    if (!within(cost, ["input_per_mtok", "output_per_mtok", "per_call", "weight"], 1n << 53n)) refuse("content");
    if (!within(cost, ["latency", "failure_latency"], YEAR) || !within(cost, ["reliability", "quality"], 1_000_000n)) refuse("content");
    if (!within(limits, ["first_output", "idle", "total"], YEAR)) refuse("content");
    if (!within(limits, ["payload", "concurrency", "context"], 1n << 53n) || !within(o, ["tries"], 64n)) refuse("content");
    seen.add(id);
  }
  return seen;
}

function checkBody(bytes, primitive) {
  const body = decode(bytes);
  if (!(body instanceof Map)) refuse("encoding");
  const own = get(body, "primitive", "text");
  if (!/^[a-z0-9_-]+(\.[a-z0-9_-]+)*$/.test(own) || own.length > 64) refuse("content");
  const ids = checkOptions(get(body, "options", "list"));
  const attempts = get(get(body, "rules", "map"), "attempts", "int");
  if (attempts < 0n || attempts > 64n) refuse("content");
  if (own !== primitive) refuse("slot");
  return ids;
}

// --- acceptance, in the order of docs/chain.md ---

function acceptChain(v, head, body) {
  const h = open("chordwheel-chain", head, v.pinned);
  if (!(h instanceof Map)) refuse("encoding");
  const seq = get(h, "seq", "uint"), issued = get(h, "issued", "int"), expires = get(h, "expires", "int");
  const refresh = get(h, "refresh_after", "int"), cid = cidField(h, "body"), now = BigInt(v.now);
  const mesh = get(h, "mesh", "text"), scope = get(h, "scope", "text"), primitive = get(h, "primitive", "text");
  if (mesh !== v.mesh) refuse("mesh");
  if (scope !== v.scope || primitive !== v.primitive) refuse("slot");
  if (seq === 0n || seq > 1n << 62n || issued <= 0n || refresh < issued || expires <= issued || expires < refresh) refuse("content");
  if (issued > now + LEEWAY) refuse("future");
  if (now >= expires) refuse("expired");
  const mark = { seq: BigInt(v.mark.seq), body: v.mark.body, issued: BigInt(v.mark.issued) };
  if (seq < mark.seq) refuse("rollback");
  if (seq === mark.seq && cid !== mark.body) refuse("equivocation");
  if (seq === mark.seq && issued < mark.issued) refuse("rollback");
  if (base32(address(body)) !== cid) refuse("body");
  return { cid, ids: checkBody(body, primitive) };
}

function acceptExtension(v, chain, extension) {
  const e = open("chordwheel-extension", extension, v.pinned), now = BigInt(v.now);
  const issued = get(e, "issued", "int"), expires = get(e, "expires", "int"), nonce = get(e, "nonce", "text");
  if (get(e, "mesh", "text") !== v.mesh) refuse("mesh");
  if (get(e, "scope", "text") !== v.scope || get(e, "primitive", "text") !== v.primitive) refuse("slot");
  if (get(e, "device", "text") !== v.device) refuse("device");
  if (cidField(e, "body") !== chain.cid) refuse("extends");
  if (nonce === "" || nonce !== v.nonce) refuse("protest");
  if (issued <= 0n || expires <= issued) refuse("content");
  if (issued > now + LEEWAY) refuse("future");
  if (now >= expires) refuse("expired");
  for (const id of checkOptions(get(e, "options", "list"))) if (chain.ids.has(id)) refuse("content");
}

let failed = 0;
const vectors = JSON.parse(readFileSync(new URL("vectors.json", here)));
for (const v of vectors) {
  let got = "";
  try {
    const file = decode(readFileSync(new URL(v.name + ".cbor", here)));
    const chain = acceptChain(v, file.get("head"), file.get("body"));
    if (file.has("extension")) acceptExtension(v, chain, file.get("extension"));
  } catch (err) {
    if (!(err instanceof Refusal)) throw err;
    got = err.message;
  }
  if (got !== v.refusal) {
    failed++;
    console.log(`${v.name}: ${got || "accepted"}, want ${v.refusal || "accepted"} (${v.what})`);
  }
}
console.log(`${vectors.length - failed} of ${vectors.length} vectors end as they should`);
process.exit(failed ? 1 : 0);
