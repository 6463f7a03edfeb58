"""Initial state: collects the objects of a streamed list (KEP-3157) until it is complete, and compares them with a list in tests."""

from __future__ import annotations

from collections.abc import Iterable

from kubeloop.cache.blobs.head import Head
from kubeloop.cache.reflector.event_decoder import EventDecoder, ReflectorStore, ends_initial_events, error_event
from kubeloop.cache.reflector.requests import ReflectorStream
from kubeloop.codec.projection import Projected
from kubeloop.meta import DecodeError, KubeloopError


class InitialState:
    """The objects of a streamed list so far, as heads with packed documents.

    Guarantees
        ``heads`` is the final state: an object that was changed during the stream is included once, a deleted one is not included.

    Not guaranteed
        Order: objects that were changed during the stream come last.
    """

    def __init__(self, decoder: EventDecoder, store: ReflectorStore, stream: ReflectorStream) -> None:
        self._decoder = decoder
        self._store = store
        self._stream = stream
        self._shown: list[Head] = []
        # There are few changes during the stream and many objects, so keys are recorded for changed objects only.
        self._changed: dict[tuple[str, str], Head | None] = {}
        #: The version of the state, once it is complete.
        self.version = ""

    def __len__(self) -> int:
        return len(self._shown)

    def heads(self) -> list[Head]:
        if not self._changed:
            return self._shown
        changed = self._changed
        unchanged = [head for head in self._shown if (head.namespace, head.name) not in changed]
        return unchanged + [head for head in changed.values() if head is not None]

    def take(self, frames: list[memoryview]) -> int | None:
        """Consume frames of the initial state. Return how many belong to it, or None if all do and the state is still incomplete.

        Raises:
            ErrorEvent: the server sent an ERROR event. DecodeError: a frame cannot be decoded.
        """
        decoder, store, stream, changed = self._decoder, self._store, self._stream, self._changed
        reader = store.reader
        read, listed, show = reader.projection.event, decoder.listed, self._shown.append
        for number, frame in enumerate(frames, start=1):
            try:
                kind, projected, document = read(frame)
            except (UnicodeDecodeError, RecursionError) as error:
                repaired = decoder.repaired(frame, error)
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
            # The versions of these events are ignored, because they come in any order. Behaviour C40.
            head = listed(projected, document, reader, store)
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


# Consistency: compares a streamed state with a list at exactly its version. For tests; off by default.
#
# After client-go's consistency detector (behaviour C43), which ends the process; here the informer's block ends with ``InconsistentState``.


#: Number of attempts to list for the comparison; after them the state is accepted without it.
TRIES = 5
_SHOWN = 5


class InconsistentState(KubeloopError):
    """The streamed initial state differs from a list at the same version. Only ``WatchPolicy.check_consistency`` compares them."""


class InitialStateComparison:
    """Compares the objects of a list with those of the stream, and reports differences."""

    def __init__(self) -> None:
        self._listed: dict[str, tuple[str, str]] = {}

    def take(self, projected: Projected, _: memoryview | bytes) -> None:
        metadata = projected.metadata
        self._listed[_key(metadata.namespace, metadata.name)] = (metadata.uid, metadata.resource_version)

    def check(self, heads: Iterable[Head], version: str, description: str) -> None:
        """Compare a streamed state with the list.

        Raises:
            InconsistentState: they differ; the message names the differing objects.
        """
        streamed = {_key(head.namespace, head.name): (head.uid, head.resource_version) for head in heads}
        faults = [f"{key}: streamed only" for key in streamed.keys() - self._listed.keys()]
        faults += [f"{key}: listed only" for key in self._listed.keys() - streamed.keys()]
        faults += [
            f"{key}: streamed at version {streamed[key][1]}, listed at {self._listed[key][1]}"
            for key in streamed.keys() & self._listed.keys()
            if streamed[key] != self._listed[key]
        ]
        if faults:
            shown = "; ".join(sorted(faults)[:_SHOWN]) + (f"; and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else "")
            raise InconsistentState(f"{description}: the state streamed at version {version} differs from the list at it: {shown}")


def _key(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name
