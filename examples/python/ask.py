"""Asks gander's agent for something and shows what it does, with httpx and httpx-sse.

    pip install -r requirements.txt
    GANDER=http://127.0.0.1:4665 TOKEN=$(gander token) python ask.py "Have a look around."

When the agent asks for permission, so does this program; ANSWER=allow or ANSWER=reject answers every time. A lost
connection is taken up again behind the last event that was seen: nothing is missed, and nothing comes twice.
"""

import json
import os
import sys
import time
import uuid
from collections.abc import Iterator

import httpx
from httpx_sse import SSEError, connect_sse

AGAIN_AFTER_S = 1.0


class Refused(Exception):
    """gander said no. `code` is for programs, the text is for people."""

    def __init__(self, problem: dict):
        super().__init__(problem.get("detail") or problem["title"])
        self.code = problem["code"]


class Gander:
    def __init__(self, address: str, token: str):
        headers = {"Authorization": f"Bearer {token}"}
        # A stream may be silent: gander sends a comment every 15 s, so a minute without a byte is a dead connection.
        self.http = httpx.Client(base_url=address, headers=headers, timeout=httpx.Timeout(10, read=60))

    def call(self, method: str, path: str, body: dict | None = None) -> dict | None:
        """Calls gander; tries again when the answer is lost. The key keeps a repeated call from being done twice."""
        headers = {"Idempotency-Key": str(uuid.uuid4())} if method == "POST" else {}
        for attempt in range(5):
            try:
                answer = self.http.request(method, path, json=body, headers=headers)
                break
            except httpx.TransportError:
                if attempt == 4:
                    raise
                time.sleep(AGAIN_AFTER_S)
        if answer.is_error:
            raise Refused(answer.json())
        return answer.json() if answer.content else None

    def events(self, path: str, after: int = 0) -> Iterator[dict]:
        """The events of `path` behind `after`, for ever."""
        while True:
            try:
                with connect_sse(self.http, "GET", path, params={"after": after}) as source:
                    if source.response.is_error:
                        source.response.read()
                        raise Refused(source.response.json())
                    for sse in source.iter_sse():
                        if not sse.data:
                            continue
                        event = json.loads(sse.data)
                        after = event.get("id", after)
                        yield event
            except (httpx.TransportError, SSEError):
                pass
            time.sleep(AGAIN_AFTER_S)


def decide(permission: dict) -> str:
    """The id of one of the ways to answer."""
    options = {option["id"]: option["name"] for option in permission["options"]}
    if answer := os.environ.get("ANSWER"):
        return f"{answer}_once"
    call = permission["tool_call"]
    print(f"The agent asks: {call['title']} {json.dumps(call['input'])}")
    for option, name in options.items():
        print(f"  {option}: {name}")
    while (answer := input("> ").strip()) not in options:
        pass
    return answer


def show(gander: Gander, session: str, event: dict) -> bool:
    """Shows an event; true when it was the turn's last."""
    match event:
        case {"type": "message.delta", "text": text}:
            print(text, end="", flush=True)
        case {"type": "tool_call.started", "tool_call": call}:
            print(f"\n[{call['title']}]")
        case {"type": "tool_call.output", "text": text}:
            print(text, end="", flush=True)
        case {"type": "plan.updated", "plan": plan}:
            print()
            for entry in plan["entries"]:
                mark = {"completed": "x", "in_progress": "-"}.get(entry["status"], " ")
                print(f"  [{mark}] {'  ' * entry['depth']}{entry['content']}")
        case {"type": "permission.requested", "permission": {"state": "pending"} as permission}:
            path = f"/v1/sessions/{session}/permissions/{permission['id']}"
            try:
                gander.call("POST", path, {"option_id": decide(permission)})
            except Refused as refused:
                # Somebody else was faster, or its time ran out: the event behind this one says which.
                print(f"({refused})")
        case {"type": "turn.completed"}:
            print()
            return True
        case {"type": "turn.failed" | "turn.cancelled" | "turn.interrupted", "turn": turn}:
            print(f"\n{turn['state']}: {(turn['error'] or {}).get('message', turn['stop_reason'])}")
            return True
    return False


def main() -> None:
    gander = Gander(os.environ["GANDER"], os.environ["TOKEN"])
    session = gander.call("POST", "/v1/sessions", {"mode": "approve"})["id"]
    try:
        gander.call("POST", f"/v1/sessions/{session}/turns", {"prompt": sys.argv[1]})
        for event in gander.events(f"/v1/sessions/{session}/events"):
            if show(gander, session, event):
                break
    finally:
        gander.call("DELETE", f"/v1/sessions/{session}")


if __name__ == "__main__":
    main()
