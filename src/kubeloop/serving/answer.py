"""Answers: what a handler returns, before it is bytes on a socket.

``Answer`` carries a JSON object (encoded as the request negotiated) or finished bytes; ``Frames`` is a stream of frames (a watch).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

JSONObject = dict[str, Any]


@dataclass(slots=True)
class Answer:
    """One whole answer.

    Exactly one of ``object`` and ``body`` is meant: ``object`` (a JSON tree) is encoded in the media type that the request
    negotiated (JSON or YAML) when ``content_type`` is empty; ``body`` is sent as it is, under ``content_type``.
    ``headers`` may repeat a name (Warning).
    """

    status: int = 200
    object: JSONObject | None = None
    body: bytes | None = None
    content_type: str = ""
    headers: list[tuple[str, str]] = field(default_factory=list)


@dataclass(slots=True)
class Frames:
    """A stream: ``chunks`` yields whole frames; it is closed (``aclose``) as soon as the client goes or the server stops."""

    chunks: AsyncIterator[bytes]
    content_type: str = "application/json"
    headers: list[tuple[str, str]] = field(default_factory=list)
