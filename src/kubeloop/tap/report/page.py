"""The report of a recording: one HTML page that loads nothing and runs nothing but its program.

Its data are connections, requests and watch events in the order of their times, each event with the fields that it changed.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Callable, Iterator
from datetime import datetime
from importlib.resources import files
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec

from kubeloop.tap.bodies import WatchFrames, decode_body, error_text
from kubeloop.tap.object_states import ObjectStates, SeenObjectReader
from kubeloop.tap.observed_request import ObservedRequest
from kubeloop.tap.recording import HarContent, HarEntry, HarFrame, Recording, decoded
from kubeloop.tap.traffic import RequestStarted
from kubeloop.types import JSONObject

#: Returns ``[path, before, after]`` for each difference; a side is ``{"value": ...}``, or empty if the path is new or gone.
Differences = Callable[[JSONObject, JSONObject], list[list[Any]]]

#: Maximum characters of a body in the page, and of all objects of events.
MAX_BODY: Final = 200_000
MAX_OBJECTS: Final = 24_000_000
#: Maximum number of differences of one event.
MAX_DIFFERENCES: Final = 100

#: Characters that a script element would interpret in its text (HTML standard, section 4.12.1.3), and line ends of old JavaScript.
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def report_page(recording: Recording, differences: Differences) -> bytes:
    """Return the page. The recorded texts are data in it, never markup or program.

    Args:
        recording: The recording.
        differences: Compares two states of an object.
    """
    style, program = _asset("page.css"), _asset("page.js")
    policy = f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(program)}'; base-uri 'none'; form-action 'none'"
    page = _asset("page.html")
    parts = {
        "POLICY": html.escape(policy),
        "TITLE": html.escape(f"{recording.path.name} - kubeloop tap"),
        "STYLE": style,
        "DATA": embedded(ReportTimeline(recording, differences).data()),
        "PROGRAM": program,
    }
    result: list[str] = []
    for number, piece in enumerate(page.split("@@")):
        result.append(parts[piece] if number % 2 else piece)
    return "".join(result).encode("utf-8", "replace")


def embedded(data: object) -> str:
    """Return data as JSON that can stand in a script element."""
    text = msgspec.json.encode(data).decode()
    for character, escape in _ESCAPES.items():
        text = text.replace(character, escape)
    return text


def _asset(name: str) -> str:
    return (files("kubeloop.tap.report") / name).read_text("utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


class _KnownRequest(NamedTuple):
    """The meaning of an entry's request. The reader remembers the columns of its Tables."""

    observed: ObservedRequest
    reader: SeenObjectReader
    resource: str


class ReportTimeline:
    """Makes the data of a report from a recording.

    >>> data = ReportTimeline(read_recording(Path("run.har")), lambda before, after: []).data()
    >>> sorted(data)
    ['connections', 'meta', 'requests', 'rows']
    """

    def __init__(self, recording: Recording, differences: Differences) -> None:
        self._recording = recording
        self._differences = differences
        self._states = ObjectStates()
        self._left = MAX_OBJECTS
        self._requests: dict[int, _KnownRequest] = {}
        self._starts = _offsets(recording.entries)

    def data(self) -> JSONObject:
        """Return the data: ``rows`` refer to ``requests`` by number. Times are in milliseconds since the start."""
        entries = sorted(zip(self._starts, self._recording.entries, strict=True), key=lambda pair: pair[0])
        requests = [self._request(start, entry) for start, entry in entries]
        steps = sorted(self._steps(entries), key=lambda step: step[0])
        rows = [self._row(*step) for step in steps]
        connections = self._connections(entries)
        rows += [_failure_row(one) for one in connections if one.get("reason")]
        rows.sort(key=lambda row: row["t"])
        details = self._recording.details
        end = max((row["t"] + row.get("d", 0) for row in rows), default=0)
        return {
            "meta": {
                "file": self._recording.path.name,
                "server": details.get("server", ""),
                "context": details.get("context", ""),
                "command": details.get("command", []),
                "started": details.get("started", "") or next((entry.started_date_time for _, entry in entries), ""),
                "redacted": bool(details.get("redacted", False)),
                "complete": self._recording.complete,
                "end": end,
            },
            "connections": connections,
            "requests": requests,
            "rows": rows,
        }

    def _steps(self, entries: list[tuple[float, HarEntry]]) -> Iterator[tuple[float, int, HarEntry, HarFrame | None]]:
        """Yield the ends of requests that are not streams, and the frames of streams: the order in which the client saw objects."""
        for number, (start, entry) in enumerate(entries):
            yield start + (entry.time if entry.frames is None else 0), number, entry, None
            for frame in entry.frames or ():
                yield start + frame.time, number, entry, frame

    def _row(self, at: float, number: int, entry: HarEntry, frame: HarFrame | None) -> JSONObject:
        if frame is None:
            return self._request_row(round(at - entry.time, 3) if entry.frames is None else at, number, entry)
        row = {
            "k": "e",
            "t": at,
            "c": entry.connection,
            "q": number,
            "v": frame.type or "data",
            "res": self._known(entry).resource,
            "dn": frame.size,
        }
        tree = None if frame.omitted else _frame_tree(entry, frame)
        if tree is None:
            return row | {"s": frame.omitted or (frame.data[:200] if not frame.encoding else "")}
        found = tree["object"]
        seen = next(self._known(entry).reader.objects(found), None)
        if frame.type in ("BOOKMARK", "ERROR") or seen is None:
            metadata = found.get("metadata")
            version = metadata.get("resourceVersion", "") if isinstance(metadata, dict) else ""
            return row | {"s": str(found.get("message", "")), "rv": str(version), "o": self._object_text(found)}
        before = self._states.replace(seen, deleted=frame.type == "DELETED", is_event=True)
        row |= {"s": seen.key.shown, "rv": seen.resource_version, "o": self._object_text(found)}
        if before is not None and frame.type == "MODIFIED":
            row["df"] = self._changes(before, seen.tree)
        return row

    def _request_row(self, at: float, number: int, entry: HarEntry) -> JSONObject:
        observed, _, resource = self._known(entry)
        row: JSONObject = {
            "k": "r",
            "t": at,
            "c": entry.connection,
            "q": number,
            "v": observed.verb,
            "res": resource,
            "s": observed.subject,
            "p": " ".join(f"{name}={value}" for name, value in observed.parameters),
            "st": entry.response.status,
            "d": entry.time,
            "up": max(0, entry.request.body_size),
            "dn": _received(entry),
        }
        if entry.outcome:
            row["x"] = entry.outcome
        if entry.frames is None:
            self._remember(entry, observed, row)
        return row

    def _remember(self, entry: HarEntry, observed: ObservedRequest, row: JSONObject) -> None:
        """Store the objects of a response, and add to the row what it tells about them."""
        tree = _content_tree(entry)
        if said := _error_text(entry, tree):
            row["x"] = said
        if tree is None or entry.response.status >= 400:
            return
        if not observed.info.is_resource or observed.info.subresource not in ("", "status"):
            return
        count = 0
        for seen in self._known(entry).reader.objects(tree):
            before = self._states.replace(seen)
            count += 1
            row["rv"] = seen.resource_version
            if before is not None and observed.info.verb in ("update", "patch"):
                row["df"] = self._changes(before, seen.tree)
        if observed.info.verb == "list":
            metadata = tree.get("metadata")
            row["rv"] = str(metadata.get("resourceVersion", "")) if isinstance(metadata, dict) else ""
            row["x"] = row.get("x") or ("1 item" if count == 1 else f"{count} items")

    def _request(self, start: float, entry: HarEntry) -> JSONObject:
        """Return the details of a request for the panel."""
        return {
            "t": start,
            "method": entry.request.method,
            "url": entry.request.url,
            "status": entry.response.status,
            "requestHeaders": [[one.name, one.value] for one in entry.request.headers],
            "responseHeaders": [[one.name, one.value] for one in entry.response.headers],
            "requestBody": _body_text(entry.request.post_data, [(one.name, one.value) for one in entry.request.headers]),
            "responseBody": _body_text(entry.response.content, [(one.name, one.value) for one in entry.response.headers]),
            "timings": entry.timings,
            "time": entry.time,
            "outcome": entry.outcome,
            "upgrade": entry.upgrade,
        }

    def _connections(self, entries: list[tuple[float, HarEntry]]) -> list[JSONObject]:
        found: dict[str, JSONObject] = {}
        for one in self._recording.details.get("connections") or ():
            if isinstance(one, dict):
                known = found.setdefault(str(one.get("connection", "")), {"n": str(one.get("connection", ""))})
                known |= {name: one[name] for name in ("server", "tls", "reason") if one.get(name)}
                known[str(one.get("event", "opened"))] = one.get("time", 0)
        for start, entry in entries:
            known = found.setdefault(entry.connection, {"n": entry.connection, "opened": start})
            known["closed"] = max(known.get("closed", 0), start + entry.time)
        return list(found.values())

    def _known(self, entry: HarEntry) -> _KnownRequest:
        """Return what the request of an entry means; the same object for each call."""
        known = self._requests.get(id(entry))
        if known is None:
            observed = _observed(entry)
            info = observed.info
            resource = f"{info.resource}.{info.group}" if info.group else info.resource
            known = _KnownRequest(observed, SeenObjectReader(resource), resource if info.is_resource else "(other paths)")
            self._requests[id(entry)] = known
        return known

    def _changes(self, before: JSONObject, after: JSONObject) -> list[list[Any]]:
        """Return the differences; those of the metadata, which say the least, come last."""
        found = sorted(self._differences(before, after), key=lambda difference: str(difference[0]).startswith("metadata."))
        return found[:MAX_DIFFERENCES]

    def _object_text(self, tree: JSONObject) -> str:
        """Return an object as JSON; an empty text when the page would become too large."""
        text = msgspec.json.encode(tree).decode()
        if len(text) > min(self._left, MAX_BODY):
            return ""
        self._left -= len(text)
        return text


def _offsets(entries: list[HarEntry]) -> list[float]:
    """Return the start of each entry in milliseconds. Recordings of other programs have only times of day."""
    times = [_time_of_day(entry.started_date_time) for entry in entries]
    first = min((one for one in times if one), default=0.0)
    return [
        entry.offset if entry.offset is not None else max(0.0, round((at or first) - first, 3))
        for entry, at in zip(entries, times, strict=True)
    ]


def _time_of_day(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp() * 1000
    except ValueError:
        return 0.0


def _observed(entry: HarEntry) -> ObservedRequest:
    url = urlsplit(entry.request.url)
    headers = tuple((one.name, one.value) for one in entry.request.headers)
    address = f"{url.scheme}://{url.netloc}"
    return ObservedRequest.from_start(RequestStarted(0, 0, 0, entry.request.method, address, unquote(url.path), url.query, headers))


def _received(entry: HarEntry) -> int:
    if entry.frames is not None:
        return sum(frame.size for frame in entry.frames)
    return max(0, entry.response.body_size)


def _content_tree(entry: HarEntry) -> JSONObject | None:
    headers = [("Content-Type", entry.response.content.mime_type)]
    try:
        tree = decode_body(entry.response.content.data, headers)
    except ValueError:
        return None
    return tree if isinstance(tree, dict) else None


def _error_text(entry: HarEntry, tree: JSONObject | None) -> str:
    try:
        data = entry.response.content.data
    except ValueError:
        return ""
    return error_text(entry.response.status, tree, data, [("Content-Type", entry.response.content.mime_type)])


def _frame_tree(entry: HarEntry, frame: HarFrame) -> JSONObject | None:
    frames = WatchFrames([("Content-Type", entry.response.content.mime_type)])
    try:
        return frames.decode(decoded(frame.data, frame.encoding))
    except ValueError:
        return None


def _body_text(content: HarContent | None, headers: list[tuple[str, str]]) -> str:
    """Return a body as text for people; protobuf becomes JSON."""
    if content is None or not (content.text or content.omitted):
        return ""
    if content.omitted:
        return f"({content.omitted})"
    if content.is_binary:
        try:
            tree = decode_body(
                content.data, [("Content-Type", content.mime_type or next((v for n, v in headers if n.lower() == "content-type"), ""))]
            )
        except ValueError:
            tree = None
        text = msgspec.json.encode(tree).decode() if tree is not None else f"({content.size or len(content.text)} bytes, binary)"
    else:
        text = content.text
    return text if len(text) <= MAX_BODY else f"{text[:MAX_BODY]}… ({len(text)} characters)"


def _failure_row(connection: JSONObject) -> JSONObject:
    return {
        "k": "c",
        "t": connection.get("failed", 0),
        "c": connection["n"],
        "v": "FAILED",
        "res": "(connection)",
        "s": f"connection to {connection.get('server', 'the proxy')}",
        "x": connection["reason"],
    }
