"""The state of one observed request: its words, times, sizes and decoded contents, as the live view and the recording show them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from multidict import CIMultiDict

from kubeloop.endpoints.request_info import RequestInfo, request_info
from kubeloop.serving.request import Request
from kubeloop.tap.bodies import BodyCopy, WatchFrames, error_text, header_value
from kubeloop.tap.object_states import SeenObject, SeenObjectReader
from kubeloop.tap.traffic import HeaderLines, RequestStarted
from kubeloop.types import JSONObject


class ObservedFrame(NamedTuple):
    """One frame of a stream. ``type`` and ``seen`` are those of a watch event; ``before`` is the object's last state."""

    at: float
    data: bytes
    type: str = ""
    seen: SeenObject | None = None
    before: JSONObject | None = None
    tree: JSONObject | None = None
    is_initial_end: bool = False


@dataclass(eq=False)
class ObservedRequest:
    """One request and its response. Times are seconds since the start of the tap; None: not yet.

    ``page`` is the number of a list's page. ``outcome`` is empty after a complete response. ``changed`` is the object of a write or a
    get together with its last state. ``has_initial_events``: the end of a watch's initial events has not come yet.
    """

    start: RequestStarted
    info: RequestInfo
    request: Request
    page: int = 1
    request_body: BodyCopy = field(default_factory=BodyCopy)
    response_body: BodyCopy = field(default_factory=BodyCopy)
    status: int = 0
    response_headers: HeaderLines = ()
    connected: float | None = None
    sent: float | None = None
    answered: float | None = None
    first_byte: float | None = None
    ended: float | None = None
    outcome: str = ""
    is_stream: bool = False
    is_upgrade: bool = False
    frames: WatchFrames | None = None
    has_initial_events: bool = False
    events: Counter[str] = field(default_factory=Counter)
    result: JSONObject | None = None
    changed: tuple[SeenObject, JSONObject | None] | None = None

    def __post_init__(self) -> None:
        self.reader = SeenObjectReader(f"{self.start.url.partition(self.start.path)[0]} {self.info.group}/{self.info.resource}")

    @classmethod
    def from_start(cls, start: RequestStarted) -> ObservedRequest:
        """Return the state at the start of a request."""

        async def no_body(_: int) -> bytes:
            return b""

        headers: CIMultiDict[str] = CIMultiDict(start.headers)
        request = Request(start.method, start.path, start.query, headers, no_body)
        return cls(start, request_info(request), request)

    @property
    def number(self) -> int:
        return self.start.request

    @property
    def verb(self) -> str:
        """The verb in capital letters, as people write it: LIST, WATCH, PATCH."""
        return self.info.verb.upper() if self.info.is_resource else self.start.method

    @property
    def subject(self) -> str:
        """The object of the request in words: ``pods -n default``, ``deployments.apps web -n shop``, ``/version``."""
        info = self.info
        if not info.is_resource:
            return info.path or "/"
        resource = f"{info.resource}.{info.group}" if info.group else info.resource
        parts = [f"{resource}/{info.subresource}" if info.subresource else resource]
        if info.name_in_path:
            parts.append(info.name)
        if info.namespace and info.resource != "namespaces":
            parts.append(f"-n {info.namespace}")
        elif info.verb in ("list", "watch", "deletecollection") and not info.namespace:
            parts.append("-A")
        return " ".join(parts)

    @property
    def parameters(self) -> list[tuple[str, str]]:
        """The parameters of the query, in their order, without ``watch``, which the verb says."""
        return [(name, value) for name, values in self.request.query.items() for value in values if name != "watch"]

    @property
    def form(self) -> str:
        """The representation that the client asks for first: Table, metadata, protobuf, aggregated discovery, or empty for JSON."""
        first = header_value(self.start.headers, "Accept").partition(",")[0]
        for word, name in (("as=Table", "Table"), ("as=PartialObjectMetadata", "metadata only"), ("as=APIGroupDiscovery", "aggregated")):
            if word in first:
                return name
        return next((name for name in ("protobuf", "cbor", "yaml") if name in first), "")

    @property
    def user_agent(self) -> str:
        """The client's name and version, and the part of the program after ``$Format``, without platform and commit."""
        return short_user_agent(header_value(self.start.headers, "User-Agent"))

    @property
    def error_text(self) -> str:
        """What the response says about an error; empty after a success, and if it says nothing."""
        return error_text(self.status, self.result, self.response_body.data, self.response_headers)

    @property
    def duration(self) -> float:
        """Seconds from the head of the request to the end of the response."""
        return (self.ended if self.ended is not None else self.start.at) - self.start.at


def short_user_agent(text: str) -> str:
    """Shorten ``manager/v0.0.0 (linux/amd64) kubernetes/$Format/leader-election`` to ``manager/v0.0.0 leader-election``."""
    first, _, rest = text.partition(" ")
    last = rest.rpartition(" ")[2].split("/")
    return f"{first} {last[2]}" if len(last) > 2 and last[0] == "kubernetes" else first
