"""An addon for mitmproxy that does what a rule of kubeloop's does, named by the environment variable ``BENCH_RULE``.

A list is rewritten when it has arrived, as mitmproxy's documentation shows it; watches, and responses that no rule concerns, are streamed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from typing import Any

_RULE = os.environ.get("BENCH_RULE", "")


def responseheaders(flow: Any) -> None:
    """Decide about a response before its body arrives."""
    query = flow.request.query
    if not _RULE or flow.response.status_code != 200:
        flow.response.stream = True
    elif query.get("watch"):
        flow.response.stream = _events()


def response(flow: Any) -> None:
    """Rewrite a list."""
    if flow.response.stream or "/pods" not in flow.request.path:
        return
    document = json.loads(flow.response.content)
    items = document.get("items")
    if items is not None:
        document["items"] = [item for item in items if _rewrite(item)]
        document["metadata"].pop("remainingItemCount", None)
        flow.response.content = json.dumps(document, separators=(",", ":")).encode()


def _events() -> Callable[[bytes], Iterable[bytes]]:
    """Return a function that rewrites the chunks of one watch. It returns a sequence, because an empty chunk would end the response."""
    waiting = b""

    def rewrite(chunk: bytes) -> list[bytes]:
        nonlocal waiting
        *frames, waiting = (waiting + chunk).split(b"\n")
        written = []
        for frame in frames:
            event = json.loads(frame)
            if event["type"] not in ("ADDED", "MODIFIED", "DELETED"):
                written.append(frame + b"\n")
            elif _rewrite(event["object"]):
                written.append(json.dumps(event, separators=(",", ":")).encode() + b"\n")
        return [b"".join(written)] if written else []

    return rewrite


def _rewrite(tree: dict[str, Any]) -> bool:
    """Change an object in place; return whether the client may see it."""
    kind, _, value = _RULE.partition("=")
    if kind == "hide":
        return value not in tree["metadata"].get("labels", {})
    if kind == "set":
        tree["spec"]["nodeName"] = value
        tree["metadata"].pop("managedFields", None)
    return True
