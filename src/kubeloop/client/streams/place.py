"""Where a stream goes: one container of one pod, or a pod; as a path and in words."""

from __future__ import annotations

from dataclasses import dataclass

from kubeloop.client.mapping import segment


@dataclass(frozen=True, slots=True)
class Place:
    """``container`` is empty where the whole pod is meant."""

    namespace: str
    pod: str
    container: str = ""

    def path(self, subresource: str) -> str:
        """Raises ValueError: a name or namespace that would reach another path."""
        return f"/api/v1/namespaces/{segment(self.namespace, 'namespace')}/pods/{segment(self.pod, 'name')}/{subresource}"

    def __str__(self) -> str:
        container = f'container "{self.container}" of ' if self.container else ""
        return f'{container}pod "{self.pod}" in namespace "{self.namespace}"'
