"""Prints a conversation: a line when a request starts and when it ends, and one for each watch event with what it changed."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from kubeloop.cli.tap_view.terminal import NO_BREAK, LineWriter
from kubeloop.cli.watch_view.diff import changes, without_noise
from kubeloop.cli.watch_view.text import Line, lines, visible
from kubeloop.codec.redact_secrets import masked
from kubeloop.tap.observed_request import ObservedFrame, ObservedRequest
from kubeloop.tap.redaction import redacted_text
from kubeloop.tap.traffic import ConnectionClosed, ConnectionFailed, ConnectionOpened, TapMessage
from kubeloop.types import JSONObject

#: Maximum lines of differences after an event.
MAX_DIFFERENCES: Final = 8
#: Maximum number of objects that are listed before the end of the initial events of a watch.
MAX_INITIAL: Final = 20
#: Columns before the text of a line: time, connection and arrow.
_INDENT: Final = 17
_NARROW: Final = 100
_VALUE: Final = 44
#: Seconds from which the steps of a response are shown separately.
_SLOW_STEP: Final = 1.0
_WRITES: Final = ("create", "update", "patch", "delete")


class LiveView:
    """Prints a conversation line by line. It is a ``ConversationListener``.

    ``only_warnings`` prints messages of the tap and nothing of the conversation.
    """

    def __init__(self, writer: LineWriter, *, show_secrets: bool = False, only_warnings: bool = False) -> None:
        self._writer = writer
        self._show_secrets = show_secrets
        self._only_warnings = only_warnings
        self._connections: set[int] = set()
        self.requests = 0
        self.sent = 0
        self.received = 0

    def on_connection(self, fact: ConnectionOpened | ConnectionFailed | ConnectionClosed) -> None:
        """Print a failed connection."""
        self._connections.add(fact.connection)
        if isinstance(fact, ConnectionFailed):
            server = f" to {fact.server}" if fact.server else ""
            self._line(fact.at, fact.connection, [("! ", "failure"), (f"connection{server} failed: {fact.reason}", "failure")])

    def on_started(self, request: ObservedRequest) -> None:
        """Print the request."""
        self.requests += 1
        agent = visible(request.user_agent)
        longest = 16 if self._writer.width < _NARROW else 32
        if len(agent) > longest:
            agent = f"{agent[: longest - 1]}…"
        form = [(f" ({request.form})", "dim")] if request.form else []
        parameters = [(f" {name}={_short(self._shown(value))}", "path") for name, value in request.parameters]
        subject: Line = [("→ ", "dim"), (f"{request.verb} ", "verb"), (_unbroken(request.subject), "name")]
        text: Line = [*subject, *form, (" " if parameters else "", ""), *parameters]
        self._line(request.start.at, request.start.connection, text, [(agent, "dim")])

    def on_answered(self, request: ObservedRequest) -> None:
        """Print the beginning of a stream or of an upgraded connection."""
        if not (request.is_stream or request.is_upgrade):
            return
        assert request.answered is not None
        to_headers = f"headers after {duration(request.answered - request.start.at)}"
        text = "streaming" if request.is_stream else f"upgraded to {dict(request.response_headers).get('Upgrade', 'another protocol')}"
        self._line(request.answered, request.start.connection, [*_answer(request), (f"  {text}, {to_headers}", "dim")])

    def on_waiting(self, request: ObservedRequest, seconds: float) -> None:
        """Print that the response has not begun."""
        waiting: Line = [("· ", "warning"), (f"{request.verb} {visible(request.subject)}: ", "")]
        waiting.append((f"still waiting for the response, {seconds:g} s", "warning"))
        self._line(request.start.at + seconds, request.start.connection, waiting)

    def on_frame(self, request: ObservedRequest, frame: ObservedFrame) -> None:
        """Print a watch event, and what it changed."""
        if frame.tree is None:
            return
        event: Line = [("  ", ""), (f"{visible(frame.type):<8} ", frame.type)]
        if request.has_initial_events and frame.type == "ADDED" and request.events["ADDED"] > MAX_INITIAL:
            return  # the bookmark at their end says how many there were
        if frame.seen is None:
            self._line(frame.at, request.start.connection, [*event, *_without_object(request, frame)])
            return
        version = f"  rv {visible(frame.seen.resource_version)}" if frame.seen.resource_version else ""
        differences = self._differences(frame.before, frame.seen.tree) if frame.before is not None and frame.type == "MODIFIED" else []
        note = ""
        if frame.type == "MODIFIED" and not differences:
            note = "  first seen here" if frame.before is None else "  only versions and managed fields changed"
        self._line(frame.at, request.start.connection, [*event, (visible(frame.seen.key.shown), "name"), (version, "dim"), (note, "dim")])
        self._print_differences(differences)

    def on_ended(self, request: ObservedRequest) -> None:
        """Print the result of a request."""
        self.sent += request.request_body.size
        self.received += request.response_body.size
        assert request.ended is not None
        sizes = f"↓ {size(request.response_body.size)}"
        if request.request_body.size:
            sizes = f"↑ {size(request.request_body.size)} {sizes}"
        right: Line = [(f"{duration(request.duration)}  {sizes}", "dim")]
        text: Line = [*_answer(request), *self._result(request)]
        self._line(request.ended, request.start.connection, text, right)
        if steps := slow_steps(request):
            self._writer.write([(" " * _INDENT, ""), (steps, "warning")], indent=_INDENT)
        if request.changed is not None and request.info.verb in _WRITES:
            seen, before = request.changed
            self._print_differences(self._differences(before, seen.tree) if before is not None and request.info.verb != "delete" else [])

    def on_message(self, fact: TapMessage) -> None:
        """Print a message of the tap."""
        self._writer.write([(f"kubeloop tap: {visible(fact.text)}", "warning")], indent=2)

    def summary(self, seconds: float, record: str) -> None:
        """Print the totals. ``record`` names the recording; empty: none."""
        if self._only_warnings:
            return
        recorded = f"; recorded in {record}" if record else ""
        requests = "1 request" if self.requests == 1 else f"{self.requests} requests"
        connections = "1 connection" if len(self._connections) == 1 else f"{len(self._connections)} connections"
        text = f"kubeloop tap: {requests} on {connections} in {duration(seconds)}, ↑ {size(self.sent)} ↓ {size(self.received)}{recorded}"
        self._writer.write([(text, "dim")], indent=2)

    def _line(self, at: float, connection: int, text: Line, right: Line | None = None) -> None:
        if self._only_warnings:
            return
        prefix: Line = [(f"{at:9.3f} ", "dim"), (f"{f'#{connection}':>4} ", "dim")]
        self._writer.write([*prefix, *text], right=right, indent=_INDENT)

    def _result(self, request: ObservedRequest) -> Line:
        tree = request.result or {}
        if request.is_stream:
            return [(f"  {_events(request.events)}; {_end_of_stream(request)}", "" if not request.outcome else "dim")]
        if request.outcome:
            return [(f"  {visible(self._shown(request.outcome))}", "failure")]
        if said := request.error_text:
            return [(f"  {visible(self._shown(said))}", "failure")]
        if request.info.verb == "list" and request.info.is_resource:
            return [(f"  {_list_result(request, tree)}", "")]
        if request.changed is not None and request.info.verb in (*_WRITES, "get"):
            version = request.changed[0].resource_version
            return [(f"  rv{NO_BREAK}{visible(version)}" if version else "", "dim")]
        return []

    def _differences(self, before: JSONObject | None, after: JSONObject) -> list[Line]:
        hide = (lambda tree: tree) if self._show_secrets else masked
        found = changes(without_noise(hide(before or {})), without_noise(hide(after)))
        return [line for change in found for line in lines(change, 60 if self._writer.width < _NARROW else 100)]

    def _print_differences(self, differences: list[Line]) -> None:
        if self._only_warnings:
            return
        for line in differences[:MAX_DIFFERENCES]:
            spans = [(self._shown(text), style) for text, style in line]
            self._writer.write([(" " * (_INDENT + 9), ""), *spans], indent=_INDENT + 11)
        if len(differences) > MAX_DIFFERENCES:
            self._writer.write([(" " * (_INDENT + 9), ""), (f"… {len(differences) - MAX_DIFFERENCES} more differences", "dim")])

    def _shown(self, text: str) -> str:
        return text if self._show_secrets else redacted_text(text)


def _answer(request: ObservedRequest) -> Line:
    """Return the arrow, the status and the request that a response belongs to."""
    status = str(request.status) if request.status else "---"
    style = "failure" if request.status >= 400 or not request.status else "good"
    return [("← ", "dim"), (f"{status} ", style), (f"{request.verb} ", ""), (_unbroken(request.subject), "")]


def _without_object(request: ObservedRequest, frame: ObservedFrame) -> Line:
    tree: Any = (frame.tree or {}).get("object") or {}
    if frame.type == "ERROR":
        return [(visible(f"{tree.get('code', '')} {tree.get('reason', '')}: {tree.get('message', '')}"), "failure")]
    metadata = tree.get("metadata") if isinstance(tree.get("metadata"), dict) else {}
    count = request.events["ADDED"]
    end = f"  end of the initial events: {'1 object' if count == 1 else f'{count} objects'}" if frame.is_initial_end else ""
    return [(f"rv {visible(str(metadata.get('resourceVersion', '')))}", "dim"), (end, "")]


def _list_result(request: ObservedRequest, tree: JSONObject) -> str:
    entries = tree.get("rows") if tree.get("kind") == "Table" else tree.get("items")
    metadata: Any = tree.get("metadata") if isinstance(tree.get("metadata"), dict) else {}
    if not isinstance(entries, list):
        return "not decoded" if request.response_body.size else ""
    parts = ["1 item" if len(entries) == 1 else f"{len(entries)} items"]
    if request.page > 1 or metadata.get("continue"):
        parts.insert(0, f"page {request.page}")
    if metadata.get("resourceVersion"):
        parts.append(f"rv{NO_BREAK}{visible(str(metadata['resourceVersion']))}")
    if metadata.get("continue"):
        left = metadata.get("remainingItemCount")
        parts.append(f"more follow ({left} left)" if left else "more follow")
    return ", ".join(parts)


def _events(events: Counter[str]) -> str:
    kinds = [f"{count} {kind}" for kind, count in events.items()]
    return ", ".join(kinds) if kinds else "no events"


def _end_of_stream(request: ObservedRequest) -> str:
    return f"ended: {request.outcome}" if request.outcome else "ended by the server"


def slow_steps(request: ObservedRequest) -> str:
    """Return the times to headers, first byte and end, if they differ by more than a second; of a stream, only to its first event."""
    if request.answered is None:
        return ""
    start = request.start.at
    headers = request.answered - start
    first = (request.first_byte - start) if request.first_byte is not None else headers
    total = first if request.is_stream or request.is_upgrade else request.duration
    if max(first - headers, total - first) <= _SLOW_STEP:
        return ""
    what_came = "first event" if request.is_stream else "first byte"
    end = "" if request.is_stream or request.is_upgrade else f", all after {duration(total)}"
    return f"headers after {duration(headers)}, {what_came} after {duration(first)}{end}"


def duration(seconds: float) -> str:
    """Format a duration: ``8 ms``, ``1.2 s``, ``2 min 3 s``."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60} s"


def size(count: int) -> str:
    """Format a number of bytes: ``512 B``, ``1.4 kB``, ``23 MB``."""
    if count < 1000:
        return f"{count} B"
    amount, unit = float(count), ""
    for unit in ("kB", "MB", "GB"):  # noqa: B007 - the last unit is used below
        amount /= 1000
        if amount < 999.5:
            break
    return f"{amount:.1f} {unit}" if amount < 9.95 else f"{amount:.0f} {unit}"


def _unbroken(subject: str) -> str:
    """Return the subject of a request with its namespace on one line."""
    return visible(subject).replace("-n ", f"-n{NO_BREAK}")


def _short(value: str) -> str:
    shown = visible(value)
    return shown if len(shown) <= _VALUE else f"{shown[:_VALUE]}…"
