"""The key of an object: cluster, namespace and name."""

from __future__ import annotations

from typing import NamedTuple


class ObjectKey(NamedTuple):
    """Identifies one object of a kind. One process may use two clusters, therefore it includes ``cluster``.

    ``namespace`` is empty for cluster-scoped objects. Prints as ``namespace/name``, or ``name`` alone.
    """

    cluster: str
    namespace: str
    name: str

    @classmethod
    def parse(cls, text: str, cluster: str = "") -> ObjectKey:
        """Parse ``namespace/name`` or ``name``.

        Raises:
            ValueError: more than one slash (client-go's SplitMetaNamespaceKey).
        """
        parts = text.split("/")
        if len(parts) > 2:
            raise ValueError(f'unexpected key format: "{text}" (wanted "name" or "namespace/name")')
        return cls(cluster, parts[0] if len(parts) == 2 else "", parts[-1])

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name
