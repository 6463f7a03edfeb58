"""Consistency: compares a state that came as a stream with a list at exactly its version. A detector for tests; off unless asked for.

After client-go's consistency detector (behaviour C43), which ends the process; here the informer's block ends with ``InconsistentState``.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubeloop.cache.blobs.head import Head
from kubeloop.codec.projection import Projected
from kubeloop.meta import KubeloopError

#: A list that fails is tried so often before the state is believed unseen.
TRIES = 5
_SHOWN = 5


class InconsistentState(KubeloopError):
    """The server streamed another state than it lists at the same version."""


class Comparison:
    """Takes the objects of the list and tells how the stream's differ."""

    def __init__(self) -> None:
        self._listed: dict[str, tuple[str, str]] = {}

    def take(self, projected: Projected, _: memoryview | bytes) -> None:
        metadata = projected.metadata
        self._listed[_key(metadata.namespace, metadata.name)] = (metadata.uid, metadata.resource_version)

    def check(self, heads: Iterable[Head], version: str, what: str) -> None:
        """
        Raises:
            InconsistentState: names the objects that differ.
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
            raise InconsistentState(f"{what}: the state streamed at version {version} differs from the list at it: {shown}")


def _key(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name
