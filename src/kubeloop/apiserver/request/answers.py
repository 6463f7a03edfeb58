"""What handlers of the API server return. The kinds of ``Reply`` live in ``kubeloop.serving``; this adds the common answers."""

from __future__ import annotations

import msgspec

from kubeloop.meta.status import Status, StatusDetails
from kubeloop.serving.answer import Answer, Hijack, Reply, SocketTakeover, StreamingResponse
from kubeloop.types import JSONObject

__all__ = [
    "NO_SNIFFING",
    "Answer",
    "JSONObject",
    "Reply",
    "StreamingResponse",
    "Takeovers",
    "indented",
    "not_found_page",
    "status_answer",
    "success",
    "text",
]

#: Replies that change the connection's protocol.
Takeovers = (Hijack, SocketTakeover)


#: Go's way of saying that plain text is no page with scripts.
NO_SNIFFING = ("X-Content-Type-Options", "nosniff")


def text(body: str, status: int = 200) -> Answer:
    """Plain text, as the health endpoints answer."""
    return Answer(status, body=body.encode(), content_type="text/plain; charset=utf-8", headers=[NO_SNIFFING])


def indented(tree: JSONObject) -> Answer:
    """JSON as the few endpoints write it that know no other form."""
    return Answer(body=msgspec.json.format(msgspec.json.encode(tree), indent=2), content_type="application/json", verbatim=True)


def not_found_page() -> Answer:
    """For paths that no handler owns: Go's plain 404 page, which the real server lets through for them."""
    return text("404 page not found\n", 404)


def status_answer(status: Status) -> Answer:
    """Return an answer with a Status, and Retry-After if its details name a delay."""
    answer = Answer(status.code or 500, object=status_object(status))
    if status.details and status.details.retry_after_seconds:
        answer.headers.append(("Retry-After", str(status.details.retry_after_seconds)))
    return answer


def status_object(status: Status) -> JSONObject:
    """As a JSON tree; empty message, reason and details are left out, as Go's omitempty does."""
    tree: JSONObject = msgspec.to_builtins(status)
    for name in ("message", "reason", "details"):
        if not tree.get(name) and not (name == "details" and tree.get(name) == {}):
            tree.pop(name, None)
    if not tree.get("code"):
        tree.pop("code", None)
    return tree


def success(details: StatusDetails | None = None, code: int = 0) -> Answer:
    """``status: Success``: what a deletion that is done answers; ``code`` 201 for a Binding."""
    return Answer(code or 200, object=status_object(Status(status="Success", details=details, code=code)))
