"""References between namespaces that ReferenceGrants allow."""

from __future__ import annotations

from collections.abc import Iterable

from examples.ingress_nginx.gateway.objects import GROUP
from examples.ingress_nginx.gateway.types import ReferenceGrant


class GrantTable:
    """The ReferenceGrants of a cluster."""

    def __init__(self, grants: Iterable[ReferenceGrant]) -> None:
        self._allowed: set[tuple[str, str, str, str, str | None]] = set()
        for grant in grants:
            for source in grant.spec.from_:
                if source.group == GROUP:
                    for target in grant.spec.to:
                        if target.group == "":
                            entry = (source.kind, source.namespace, target.kind, grant.metadata.namespace, target.name or None)
                            self._allowed.add(entry)

    def allow(self, source: tuple[str, str], kind: str, namespace: str, name: str) -> bool:
        """Report whether an object may refer to a core object of a namespace.

        Args:
            source: Kind (of the Gateway API) and namespace of the referring object.
            kind: Kind of the target: Secret or Service.
            namespace: Namespace of the target.
            name: Name of the target.
        """
        return source[1] == namespace or any((*source, kind, namespace, target) in self._allowed for target in (None, name))
