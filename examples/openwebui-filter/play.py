"""Plays the calls that Open WebUI makes of a filter: one JSON line in, one out."""

import asyncio
import json
import sys

from chordwheel_filter import Filter


async def main():
    made = Filter()
    for line in sys.stdin:
        step = json.loads(line)
        said = []

        async def emit(event):
            said.append(event)

        for name, value in step.get("valves", {}).items():
            setattr(made.valves, name, value)
        call = made.inlet if step["call"] == "inlet" else made.outlet
        body = await call(step["body"], __metadata__=step["metadata"], __event_emitter__=emit, __user__={"id": "somebody"})
        print(json.dumps({"body": body, "events": said}), flush=True)


asyncio.run(main())
