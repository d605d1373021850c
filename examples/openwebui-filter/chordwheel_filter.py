"""
title: chordwheel
description: Lets chordwheel choose the model, and keeps a signed receipt of each chat.
version: 1.1.0
license: Apache-2.0
"""

# Before a chat the filter asks the device who may serve it (inlet), after it the filter
# reports (outlet). It is thin on purpose: what is chosen, hashed and signed is the
# device's matter. Whatever fails here, the user's chat goes on as it was.

import asyncio
import json
import urllib.request
from collections import OrderedDict

try:
    from pydantic import BaseModel, Field
except ImportError:  # outside Open WebUI, for tests

    class BaseModel:
        def __init__(self, **values):
            for name, value in values.items():
                setattr(self, name, value)

    def Field(default=None, **_):
        return default


MOST_OPEN = 1024  # chats whose outlet has not come yet


class Filter:
    class Valves(BaseModel):
        edge: str = Field(default="http://127.0.0.1:7420/v1", description="The device's edge")
        key: str = Field(default="", description="A key of the edge: chordwheel apps add open-webui")
        auto_model: str = Field(default="auto", description="The model that leaves the choice to chordwheel")
        carried: bool = Field(default=True, description="The chats of these models go through this edge, as a connection to it does")
        timeout: float = Field(default=5.0, description="Seconds to wait for the device")
        priority: int = Field(default=0, description="Order among filters")

    def __init__(self):
        self.valves = self.Valves()
        self.open = OrderedDict()

    async def inlet(self, body: dict, __metadata__=None, __event_emitter__=None, **_) -> dict:
        try:
            asked = self._model(body.get("model"))
            auto = asked == self.valves.auto_model
            answer = await self._post("/inlet", {"mode": "auto" if auto else "direct", "model": asked, "messages": body["messages"]})
            chosen = self._prefix(body.get("model")) + answer["agent_model_id"]
            transaction = answer["transaction_id"]
            self._stash(self._name(body, __metadata__), answer)
            # From here on nothing fails: a body is changed whole or not at all.
            if self.valves.carried:
                # The edge keeps the chat's receipt under this transaction, and takes the
                # member out: one chat leaves one receipt.
                body["transaction_id"] = transaction
            if auto:
                body["model"] = chosen
                await self._say(__event_emitter__, answer)
        except Exception as problem:
            self._log("inlet", problem)
        return body

    async def outlet(self, body: dict, __metadata__=None, **_) -> dict:
        try:
            stash = self.open.pop(self._name(body, __metadata__), None)
            if stash is None:
                return body
            last = next((m for m in reversed(body.get("messages") or []) if m.get("role") == "assistant"), {})
            failed = bool(last.get("error"))
            text = last.get("content")
            report = {name: stash.get(name) for name in ("token_id", "request_hash", "agent_model_id", "transaction_id")}
            report["response"] = text if isinstance(text, str) else json.dumps(text)
            report["status"] = "upstream_error" if failed else "ok"
            await self._post("/outlet", report)
        except Exception as problem:
            self._log("outlet", problem)
        return body

    def _stash(self, name, answer):
        self.open[name] = answer
        while len(self.open) > MOST_OPEN:
            self.open.popitem(last=False)

    @staticmethod
    def _name(body, metadata):
        """Names one answer of one chat: both calls have it."""
        metadata = metadata or {}
        chat = metadata.get("chat_id") or body.get("chat_id") or ""
        message = metadata.get("message_id") or body.get("id") or ""
        return chat, message

    def _prefix(self, model):
        """Open WebUI may put the name of the connection in front of a model."""
        suffix = "." + self.valves.auto_model
        return model[: -len(self.valves.auto_model)] if model and model.endswith(suffix) else ""

    def _model(self, model):
        return self.valves.auto_model if self._prefix(model) else model

    async def _say(self, emit, answer):
        if emit:
            await emit({"type": "status", "data": {"description": "chordwheel: " + answer["agent_model_id"], "done": True}})

    async def _post(self, path, question):
        # The socket's own limit starts anew with each byte that comes.
        return await asyncio.wait_for(asyncio.to_thread(self._send, path, question), self.valves.timeout)

    def _send(self, path, question):
        request = urllib.request.Request(
            self.valves.edge.rstrip("/") + path,
            data=json.dumps(question, ensure_ascii=False).encode("utf-8", "replace"),
            headers={"Content-Type": "application/json", "Authorization": "Bearer " + self.valves.key},
        )
        with urllib.request.urlopen(request, timeout=self.valves.timeout) as answer:
            return json.load(answer)

    @staticmethod
    def _log(step, problem):
        # Neither content nor key: the kind of the problem is enough to look further.
        print(f"chordwheel {step}: {type(problem).__name__} {getattr(problem, 'code', '')}".rstrip())
