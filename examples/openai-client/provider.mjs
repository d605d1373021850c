// A provider that plays what the last user message asks for. It keeps what it
// was sent, and says when a caller goes away.
import { createServer } from "node:http";
import { once, EventEmitter } from "node:events";

const words = ["one", " two", " three", " four", " five"];

/** Characters of two, three and four bytes. */
export const wide = "é€𝄞";

/** Starts a provider on a free port. `name` shows in its answers. */
export async function startProvider(name) {
  const seen = []; // {path, headers, body} of each request
  let held = false; // it answers nothing
  const events = new EventEmitter();
  const server = createServer(async (req, res) => {
    let text = "";
    for await (const piece of req) text += piece;
    const body = JSON.parse(text);
    seen.push({ path: req.url, headers: req.headers, body });
    const script = held ? "say nothing at all" : scriptFor(body);
    // "close" comes after a finished answer too: only an unfinished one counts.
    res.on("close", () => res.writableFinished || events.emit("gone", script));
    events.emit("asked", script);
    play(script, name, body, res, events);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${server.address().port}/v1`,
    requests: seen,
    last: () => seen.at(-1),
    /** Resolves when a request with the script has arrived. */
    asked: (script) => until(events, "asked", script),
    /** Resolves when a caller left before its answer was finished. */
    gone: (script) => until(events, "gone", script),
    /** Says that the caller has seen piece i of "ten pieces". */
    seen: (i) => events.emit("seen", i),
    /** Answers nothing until release is called; asked and gone are of the next request. */
    hold: () => {
      held = true;
      return { asked: until(events, "asked", "say nothing at all"), gone: until(events, "gone", "say nothing at all"), release: () => (held = false) };
    },
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

function until(events, event, script) {
  return new Promise((resolve) => {
    const look = (got) => {
      if (got !== script) return;
      events.off(event, look);
      resolve();
    };
    events.on(event, look);
  });
}

function scriptFor(body) {
  const all = JSON.stringify(body.messages);
  if (all.includes("depends_on")) return "make a plan";
  if (all.includes("issues")) return "score it";
  if (body.messages.some((m) => m.role === "tool")) return "after the tools";
  const last = body.messages.findLast((m) => m.role === "user").content;
  return typeof last === "string" ? last : last.find((part) => part.type === "text").text;
}

function play(script, name, body, res, events) {
  const answer = new Answer(name, body, res);
  switch (script) {
    case "call two tools":
      return answer.toolCalls([
        { id: "call_a", name: "weather", arguments: ['{"city":', '"Pune"}'] },
        { id: "call_b", name: "weather", arguments: ['{"city":"Ko', 'chi"}'] },
      ]);
    case "say nothing at all":
      return; // the caller has to leave
    case "say only a role":
      answer.chunk({ role: "assistant", content: "" });
      return;
    case "stop after one word":
      answer.chunk({ role: "assistant", content: words[0] });
      return;
    case "cut wide characters":
      return answer.cutEverywhere(wide);
    case "ten pieces":
      return answer.oneByOne(10, events);
    case "break after two words":
      answer.chunk({ role: "assistant", content: words[0] });
      answer.chunk({ content: words[1] });
      setImmediate(() => res.destroy());
      return;
    case "refuse my request":
      return answer.error(422, { message: "temperature is out of range", type: "invalid_request_error", code: "bad_temperature", param: "temperature" });
    case "be down":
      if (name === "first") return answer.error(503, { message: "down for now", type: "server_error", code: "down" });
      return answer.text(words);
    case "make a plan":
      return answer.text([
        "Here it is:\n```json\n",
        JSON.stringify({ subtasks: ["one", "two"].map((id, i) => ({ id, type: "research", prompt: id, tier: i + 1, depends_on: [] })), synthesis: "supervisor" }),
        "\n```",
      ]);
    case "score it":
      return answer.text(['{"score": 0.9, "issues": []}']);
    case "after the tools": {
      const results = body.messages.filter((m) => m.role === "tool").map((m) => `${m.tool_call_id}=${m.content}`);
      return answer.text([results.join(" ")]);
    }
    default:
      return answer.text(words);
  }
}

/** Answer writes one reply in the shape that was asked for. */
class Answer {
  constructor(name, body, res) {
    Object.assign(this, { name, body, res });
  }

  get common() {
    return { id: "chatcmpl-1", created: 1700000000, model: this.body.model };
  }

  get usage() {
    return { prompt_tokens: 7, completion_tokens: 5, total_tokens: 12 };
  }

  event(data) {
    if (!this.res.headersSent) this.res.writeHead(200, { "Content-Type": "text/event-stream" });
    this.res.write(`data: ${JSON.stringify({ ...this.common, object: "chat.completion.chunk", ...data })}\n\n`);
  }

  chunk(delta, finish_reason = null) {
    this.event({ choices: [{ index: 0, delta, finish_reason }] });
  }

  end() {
    if (this.body.stream_options?.include_usage) this.event({ choices: [], usage: this.usage });
    this.res.end("data: [DONE]\n\n");
  }

  json(status, value) {
    this.res.writeHead(status, { "Content-Type": "application/json" });
    this.res.end(JSON.stringify(value));
  }

  error(status, error) {
    this.json(status, { error });
  }

  whole(message, finish_reason) {
    this.json(200, {
      ...this.common,
      object: "chat.completion",
      choices: [{ index: 0, message: { role: "assistant", ...message }, finish_reason }],
      usage: this.usage,
    });
  }

  text(pieces) {
    if (!this.body.stream) return this.whole({ content: pieces.join("") }, "stop");
    this.chunk({ role: "assistant", content: "" });
    for (const content of pieces) this.chunk({ content });
    this.chunk({}, "stop");
    this.end();
  }

  /** The same text in one event after the other, each cut in two one byte further on. */
  async cutEverywhere(content) {
    this.chunk({ role: "assistant", content: "" });
    const choices = [{ index: 0, delta: { content }, finish_reason: null }];
    const event = Buffer.from(`data: ${JSON.stringify({ ...this.common, object: "chat.completion.chunk", choices })}\n\n`);
    this.res.socket.setNoDelay(true);
    for (let at = 1; at < event.length; at++) {
      this.res.write(event.subarray(0, at));
      await new Promise(setImmediate);
      this.res.write(event.subarray(at));
    }
    this.pieces = event.length - 1;
    this.chunk({ content: ` ${this.pieces}` });
    this.chunk({}, "stop");
    this.end();
  }

  /** Pieces 100 ms apart; each waits until the caller has seen the one before. */
  async oneByOne(n, events) {
    this.chunk({ role: "assistant", content: "" });
    for (let i = 0; i < n; i++) {
      const got = new Promise((resolve) => events.once("seen", resolve));
      this.chunk({ content: `${i} ` });
      await Promise.all([got, new Promise((resolve) => setTimeout(resolve, 100))]);
    }
    this.chunk({}, "stop");
    this.end();
  }

  toolCalls(calls) {
    if (!this.body.stream) {
      const tool_calls = calls.map((c) => ({ id: c.id, type: "function", function: { name: c.name, arguments: c.arguments.join("") } }));
      return this.whole({ content: null, tool_calls }, "tool_calls");
    }
    this.chunk({ role: "assistant", content: null });
    calls.forEach((c, index) => {
      this.chunk({ tool_calls: [{ index, id: c.id, type: "function", function: { name: c.name, arguments: "" } }] });
    });
    // The arguments of parallel calls come interleaved, as real services send them.
    for (const part of [0, 1]) {
      calls.forEach((c, index) => this.chunk({ tool_calls: [{ index, function: { arguments: c.arguments[part] } }] }));
    }
    this.chunk({}, "tool_calls");
    this.end();
  }
}
