"""HAR 1.2 entries: one request and its response with headers, bodies and times; frames of streams in ``_frames``.

Source: http://www.softwareishard.com/blog/har-12-spec/. Custom fields begin with an underscore.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any

import msgspec

from kubeloop.tap.bodies import HeaderPairs, decode_body, decompressed, header_value, is_json, is_protobuf
from kubeloop.tap.observed_request import ObservedFrame, ObservedRequest
from kubeloop.tap.redaction import may_be_secret, redacted_body, redacted_headers, redacted_text, redacted_tree
from kubeloop.types import JSONObject

#: The version of the custom fields.
FORMAT = 1
_REASONS = {one.value: one.phrase for one in HTTPStatus}


class EntryWriter:
    """Makes HAR entries of observed requests, without secrets unless ``show_secrets`` is set.

    >>> writer = EntryWriter(clock.wall(), show_secrets=False)
    """

    def __init__(self, started: datetime, *, show_secrets: bool) -> None:
        self._started = started
        self._show_secrets = show_secrets

    def started(self, request: ObservedRequest) -> JSONObject:
        """Return the entry of a request whose response is not there yet."""
        start = request.start
        query = f"?{start.query}" if start.query else ""
        info = request.info
        resource = f"{info.resource}.{info.group}" if info.group else info.resource
        return {
            "startedDateTime": self._time(start.at),
            "time": 0,
            "request": {
                "method": start.method,
                "url": self._text(start.url + query),
                "httpVersion": "HTTP/1.1",
                "cookies": [],
                "headers": self._headers(start.headers),
                "queryString": [
                    {"name": name, "value": self._text(value)} for name, values in request.request.query.items() for value in values
                ],
                "headersSize": -1,
                "bodySize": 0,
            },
            "response": self._response(request, {"size": 0, "mimeType": ""}, 0),
            "cache": {},
            "timings": {"blocked": -1, "dns": -1, "connect": -1, "ssl": -1, "send": 0, "wait": 0, "receive": 0},
            "connection": str(start.connection),
            "_request": start.request,
            "_offset": _ms(start.at),
            "_verb": request.verb,
            "_resource": resource + (f"/{info.subresource}" if info.subresource else ""),
            "_namespace": info.namespace,
            "_name": info.name if info.name_in_path else "",
            "_outcome": "the recording ended before the response",
        }

    def answered(self, request: ObservedRequest) -> JSONObject:
        """Return what the head of a response changes in an entry; for streams, whose end may never be recorded."""
        content = {"size": 0, "mimeType": header_value(request.response_headers, "Content-Type")}
        return {"response": self._response(request, content, -1), "timings": _timings(request), "_frames": []}

    def ended(self, request: ObservedRequest) -> JSONObject:
        """Return what the end of a request changes in its entry."""
        entry = self.started(request)
        body, copy = request.request_body, request.response_body
        entry["request"]["bodySize"] = body.size
        if body.size and not request.is_upgrade:
            kind = header_value(request.start.headers, "Content-Type")
            sent = self._body(body.data, request.start.headers, request)
            if "encoding" in sent:  # a field that only responses have in HAR
                sent["_encoding"] = sent.pop("encoding")
            entry["request"]["postData"] = {"mimeType": kind, **sent}
        content: JSONObject = {"size": copy.size, "mimeType": header_value(request.response_headers, "Content-Type")}
        if not request.is_stream and not request.is_upgrade and copy.size:
            content |= self._body(copy.data, request.response_headers, request)
        entry["response"] = self._response(request, content, copy.size)
        entry["time"] = _ms(request.duration)
        entry["timings"] = _timings(request)
        entry["_outcome"] = self._text(request.outcome)
        if request.is_upgrade:
            entry["_upgrade"] = header_value(request.response_headers, "Upgrade")
        return entry

    def frame(self, request: ObservedRequest, frame: ObservedFrame) -> JSONObject:
        """Return one entry of ``_frames``: its time in milliseconds since the start of the request, and its bytes."""
        result: JSONObject = {"time": _ms(frame.at - request.start.at), "size": len(frame.data)}
        if frame.tree is None:
            data = frame.data if self._show_secrets or not may_be_secret(request.info) else None
            if data is None:
                return result | {"_omitted": "may contain secrets"}
            return result | _encoded(data, is_text=not self._show_secrets)
        if self._show_secrets:
            return result | {"type": frame.type} | _encoded(frame.data, is_text=False)
        result["type"] = frame.type
        shown = redacted_tree(frame.tree, request.info)
        if shown == frame.tree:
            return result | _encoded(frame.data, is_text=False)
        if is_protobuf(request.response_headers):
            return result | {"_omitted": "contains secrets"}
        return result | {"data": msgspec.json.encode(shown).decode()}

    def _response(self, request: ObservedRequest, content: JSONObject, size: int) -> JSONObject:
        return {
            "status": request.status,
            "statusText": _REASONS.get(request.status, ""),
            "httpVersion": "HTTP/1.1",
            "cookies": [],
            "headers": self._headers(request.response_headers),
            "content": content,
            "redirectURL": header_value(request.response_headers, "Location"),
            "headersSize": -1,
            "bodySize": size,
        }

    def _headers(self, headers: Iterable[tuple[str, str]]) -> list[JSONObject]:
        shown = headers if self._show_secrets else redacted_headers(headers)
        return [{"name": name, "value": value} for name, value in shown]

    def _body(self, data: bytes | None, headers: HeaderPairs, request: ObservedRequest) -> JSONObject:
        """Return ``text`` and ``encoding`` of a body, decompressed; or ``_omitted`` with the reason."""
        plain = None if data is None else decompressed(data, headers)
        if plain is None:
            return {"text": "", "_omitted": "too large to be recorded, or in an unknown encoding"}
        if self._show_secrets:
            return _named(plain)
        secret = may_be_secret(request.info)
        tree = decode_body(plain, [(name, value) for name, value in headers if name.lower() != "content-encoding"])
        if tree is None:
            return {"text": "", "_omitted": "may contain secrets"} if secret else _named(plain, redact=True)
        if redacted_tree(tree, request.info) != tree:
            shown = redacted_body(tree, request.info, protobuf=not is_json(headers))
            return {"text": "", "_omitted": "may contain secrets"} if shown is None else _named(shown)
        return _named(plain)

    def _text(self, text: str) -> str:
        return text if self._show_secrets else redacted_text(text)

    def _time(self, offset: float) -> str:
        return (self._started + timedelta(seconds=offset)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _timings(request: ObservedRequest) -> JSONObject:
    start, answered, ended = request.start.at, request.answered, request.ended
    connect = max(0.0, request.connected - start) if request.connected is not None else None
    begin = request.connected if request.connected is not None else start
    return {
        "blocked": -1,
        "dns": -1,
        "connect": -1 if connect is None else _ms(connect),
        "ssl": -1,
        "send": 0,
        "wait": _ms(answered - begin) if answered is not None else 0,
        "receive": _ms(ended - answered) if ended is not None and answered is not None else 0,
        "_firstByte": -1 if request.first_byte is None else _ms(request.first_byte - start),
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)


def _named(data: bytes, *, redact: bool = False) -> JSONObject:
    """Return a body in the names of HAR's ``content``: ``text`` and ``encoding``."""
    found = _encoded(data, is_text=redact)
    return {"text": found["data"]} | ({"encoding": "base64"} if "encoding" in found else {})


def _encoded(data: bytes, *, is_text: bool) -> JSONObject:
    """Return bytes as text, or in base64 if they are not UTF-8. ``is_text``: take tokens and keys out of the text."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return {"data": base64.b64encode(data).decode(), "encoding": "base64"}
    return {"data": redacted_text(text) if is_text else text}


def log_of(meta: JSONObject, entries: Iterable[bytes]) -> Iterable[bytes]:
    """Yield the parts of a HAR file.

    Args:
        meta: The members of ``log`` before ``entries``.
        entries: The entries, encoded.
    """
    head = msgspec.json.encode(meta)
    yield b'{"log":' + head[:-1] + b',"entries":[\n'
    for number, entry in enumerate(entries):
        yield (b",\n" if number else b"") + entry
    yield b"\n]}}\n"


def har_meta(creator_version: str, details: Any) -> JSONObject:
    """Return the members of ``log`` before ``entries``. ``details`` are kubeloop's own."""
    return {"version": "1.2", "creator": {"name": "kubeloop tap", "version": creator_version}, "pages": [], "_kubeloop": details}
