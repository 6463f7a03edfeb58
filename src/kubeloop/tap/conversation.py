"""Turns the facts of the relay into requests, watch events and their meaning, and passes these on to the live view and the recording."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

from kubeloop.tap.bodies import WatchFrames, decode_body
from kubeloop.tap.object_states import ObjectStates
from kubeloop.tap.observed_request import ObservedFrame, ObservedRequest
from kubeloop.tap.traffic import (
    ConnectionClosed,
    ConnectionFailed,
    ConnectionOpened,
    DataSkipped,
    RequestData,
    RequestEnded,
    RequestStarted,
    ResponseData,
    ResponseStarted,
    StillWaiting,
    TapMessage,
    TrafficFact,
)
from kubeloop.types import JSONObject

#: Maximum number of continue tokens whose pages are counted.
_MAX_TOKENS = 1000
_INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class ConversationListener(Protocol):
    """Gets the conversation step by step. All calls come from one thread at a time."""

    def on_connection(self, fact: ConnectionOpened | ConnectionFailed | ConnectionClosed) -> None:
        """A connection was opened, failed or was closed."""

    def on_started(self, request: ObservedRequest) -> None:
        """The head of a request has arrived."""

    def on_answered(self, request: ObservedRequest) -> None:
        """The head of the response has arrived."""

    def on_waiting(self, request: ObservedRequest, seconds: float) -> None:
        """The response has not begun after ``seconds``."""

    def on_frame(self, request: ObservedRequest, frame: ObservedFrame) -> None:
        """A watch sent an event, or another stream sent bytes."""

    def on_ended(self, request: ObservedRequest) -> None:
        """The response is complete, or will stay incomplete."""

    def on_message(self, fact: TapMessage) -> None:
        """The tap itself has a message."""


class Conversation:
    """Follows all requests. Call it with each fact in order; it calls the listeners.

    Memory is bounded: bodies and states of objects above their limits are counted, not stored.

    >>> conversation = Conversation([])
    >>> conversation(TapMessage(0.0, "started"))
    """

    def __init__(self, listeners: Sequence[ConversationListener]) -> None:
        self._listeners = listeners
        self._requests: dict[int, ObservedRequest] = {}
        self._states = ObjectStates()
        self._pages: OrderedDict[str, int] = OrderedDict()

    def __call__(self, fact: TrafficFact) -> None:
        match fact:
            case ConnectionOpened() | ConnectionFailed() | ConnectionClosed():
                for listener in self._listeners:
                    listener.on_connection(fact)
            case RequestStarted():
                self._start(fact)
            case TapMessage():
                for listener in self._listeners:
                    listener.on_message(fact)
            case RequestData() | ResponseData() | ResponseStarted() | DataSkipped() | StillWaiting() | RequestEnded():
                request = self._requests.get(fact.request)
                if request is not None:
                    self._continue(request, fact)

    def _start(self, fact: RequestStarted) -> None:
        request = ObservedRequest.from_start(fact)
        if token := request.request.parameter("continue"):
            request.page = self._pages.get(token, 1)
        self._requests[fact.request] = request
        for listener in self._listeners:
            listener.on_started(request)

    def _continue(self, request: ObservedRequest, fact: TrafficFact) -> None:
        match fact:
            case RequestData():
                request.request_body.add(fact.data)
                if request.is_upgrade:
                    request.request_body.drop()
            case ResponseStarted():
                self._answer(request, fact)
            case ResponseData():
                self._receive(request, fact)
            case DataSkipped():
                (request.response_body if fact.of_response else request.request_body).skip(fact.size)
                if request.frames is not None and fact.of_response:
                    request.frames.end()
            case StillWaiting():
                for listener in self._listeners:
                    listener.on_waiting(request, fact.seconds)
            case RequestEnded():
                self._end(request, fact)

    def _answer(self, request: ObservedRequest, fact: ResponseStarted) -> None:
        request.status, request.response_headers = fact.status, fact.headers
        request.answered, request.connected = fact.at, fact.connected
        request.is_upgrade = fact.status == 101
        if fact.status == 200 and request.info.verb == "watch":
            request.is_stream = True
            request.frames = WatchFrames(fact.headers)
            request.has_initial_events = request.request.parameter("sendInitialEvents") == "true"
        follow = request.request.parameter("follow")
        if fact.status == 200 and request.info.subresource == "log" and follow not in ("", "false", "0"):
            request.is_stream = True
        for listener in self._listeners:
            listener.on_answered(request)

    def _receive(self, request: ObservedRequest, fact: ResponseData) -> None:
        request.first_byte = fact.at if request.first_byte is None else request.first_byte
        body = request.response_body
        body.add(fact.data)
        if request.is_upgrade:
            body.drop()
        elif request.frames is not None:
            body.drop()
            for frame in request.frames.feed(fact.data):
                self._event(request, request.frames, fact.at, frame)
        elif request.is_stream:
            body.drop()
            self._frame(request, ObservedFrame(fact.at, fact.data))

    def _event(self, request: ObservedRequest, frames: WatchFrames, at: float, data: bytes) -> None:
        tree = frames.decode(data)
        if tree is None:
            self._frame(request, ObservedFrame(at, data))
            return
        kind, found = str(tree.get("type", "")), tree["object"]
        request.events[kind] += 1
        seen = next(request.reader.objects(found), None)
        if kind in ("BOOKMARK", "ERROR") or seen is None:
            ends = _is_initial_end(found)
            self._frame(request, ObservedFrame(at, data, kind, None, None, tree, ends))
            request.has_initial_events = request.has_initial_events and not ends
            return
        before = self._states.replace(seen, deleted=kind == "DELETED", is_event=True)
        self._frame(request, ObservedFrame(at, data, kind, seen, before, tree))

    def _frame(self, request: ObservedRequest, frame: ObservedFrame) -> None:
        for listener in self._listeners:
            listener.on_frame(request, frame)

    def _end(self, request: ObservedRequest, fact: RequestEnded) -> None:
        del self._requests[fact.request]
        request.ended, request.outcome = fact.at, fact.outcome
        if not request.is_stream:
            tree = decode_body(request.response_body.data, request.response_headers)
            if isinstance(tree, dict):
                request.result = tree
                self._remember(request, tree)
        for listener in self._listeners:
            listener.on_ended(request)

    def _remember(self, request: ObservedRequest, tree: JSONObject) -> None:
        if request.status >= 300 or not request.info.is_resource or request.info.subresource not in ("", "status"):
            return
        is_list = request.info.verb == "list"
        for seen in request.reader.objects(tree):
            deleted = request.info.verb == "delete" and not seen.tree.get("metadata", {}).get("deletionTimestamp")
            before = self._states.replace(seen, deleted=deleted)
            if not is_list:
                request.changed = seen, before
        metadata = tree.get("metadata")
        if is_list and isinstance(metadata, dict) and (token := metadata.get("continue")):
            self._pages[str(token)] = request.page + 1
            if len(self._pages) > _MAX_TOKENS:
                self._pages.popitem(last=False)


def _is_initial_end(tree: JSONObject) -> bool:
    """Return whether a bookmark ends the initial events of a streaming list (KEP-3157)."""
    metadata = tree.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    return isinstance(annotations, dict) and annotations.get(_INITIAL_EVENTS_END) == "true"
