"""Initial state: collects what a stream shows before it says that it has shown everything (KEP-3157). Nothing of it reaches the cache."""

from __future__ import annotations

from kubeloop.cache.blobs.head import Head
from kubeloop.cache.reflector.event_decoder import EventDecoder, ends_initial_events, error_event
from kubeloop.cache.reflector.store import ReflectorStore
from kubeloop.cache.reflector.watch_stream import WatchStream
from kubeloop.meta import DecodeError


class InitialState:
    """What was shown so far, as heads with packed documents: what a state needs while it comes is what it needs at rest.

    Guarantees
        ``heads`` is the net state: an object that was changed or deleted meanwhile is there once, as it was last, or not at all.

    Not guaranteed
        The order: what was changed meanwhile comes last.
    """

    def __init__(self, intake: EventDecoder, sink: ReflectorStore, stream: WatchStream) -> None:
        self._intake = intake
        self._sink = sink
        self._stream = stream
        self._shown: list[Head] = []
        # Changes while the state is still coming in are few, objects are many: no key is kept for what was only shown.
        self._changed: dict[tuple[str, str], Head | None] = {}
        #: The version of the state, once it is complete.
        self.version = ""

    def __len__(self) -> int:
        return len(self._shown)

    def heads(self) -> list[Head]:
        if not self._changed:
            return self._shown
        changed = self._changed
        kept = [head for head in self._shown if (head.namespace, head.name) not in changed]
        return kept + [head for head in changed.values() if head is not None]

    def take(self, frames: list[memoryview]) -> int | None:
        """How many of the frames belong to it; None: all, and it is not complete.

        Raises:
            ErrorEvent: the server gave up. DecodeError: what cannot be read.
        """
        intake, sink, stream, changed = self._intake, self._sink, self._stream, self._changed
        reader = sink.reader
        read, listed, show = reader.projection.event, intake.listed, self._shown.append
        for number, frame in enumerate(frames, start=1):
            try:
                kind, projected, document = read(frame)
            except (UnicodeDecodeError, RecursionError) as error:
                repaired = intake.repaired(frame, error)
                if repaired is not None and self.take([repaired]) is not None:
                    return number
                continue
            stream.events += 1
            if kind == "ERROR":
                raise error_event(document)
            if kind == "BOOKMARK":
                stream.bookmark()
                if ends_initial_events(document):
                    self.version = projected.metadata.resource_version
                    return number
                continue
            if kind not in ("ADDED", "MODIFIED", "DELETED"):
                raise DecodeError(f'an event of unknown type "{kind}"')
            # Versions of these events are not followed: they come in any order. Behaviour C40.
            head = listed(projected, document, reader, sink)
            if head is None:
                continue
            key = head.namespace, head.name
            if kind == "DELETED":
                changed[key] = None
            elif kind == "MODIFIED" or key in changed:
                changed[key] = head
            else:
                show(head)
        return None
