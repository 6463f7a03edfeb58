"""The names of the API server's resources: of the kinds that Events name, and of the resources that rules name.

Source: Kubernetes documentation, "The Kubernetes API", discovery (aggregated and unaggregated).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import quote

from kubeloop.meta.errors import ApiError
from kubeloop.proxy.rules import RewriteRule
from kubeloop.proxy.upstream import HeaderLines, Upstream, parsed
from kubeloop.timing import Clock

#: Seconds for which the names of a group's resources are cached.
_AGE: Final = 60.0
JSON_ONLY: Final[HeaderLines] = [("Accept", "application/json")]
_AGGREGATED: Final = [("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")]


class ResourceNames:
    """Reads names of resources from the API server's discovery, as the proxy's own user."""

    def __init__(self, upstream: Upstream, clock: Clock) -> None:
        self._upstream = upstream
        self._clock = clock
        self._known: dict[str, tuple[float, dict[str, str]]] = {}

    async def of_kind(self, group: str, version: str, kind: str) -> str:
        """Return the name of a kind's resource in paths, or an empty text if the API server does not serve the kind.

        Raises:
            ApiError: The API server sent no response.
        """
        path = f"/apis/{quote(group, safe='')}/{quote(version, safe='')}" if group else f"/api/{quote(version, safe='')}"
        known, now = self._known.get(path), self._clock.now()
        if known is None or known[0] <= now:
            try:
                document = parsed(await self._upstream.read(path, JSON_ONLY))
            except ApiError as error:
                if error.status.code != 404:
                    raise
                document = {}
            listed = document.get("resources") or ()
            names = {found["kind"]: found["name"] for found in listed if "/" not in found["name"]}
            known = self._known[path] = now + _AGE, names
        return known[1].get(kind, "")

    async def unserved(self, rules: Iterable[RewriteRule]) -> list[str]:
        """Return a text for each group and resource that rules name and that the API server does not serve.

        Such a rule changes nothing: its name may be misspelt, or its CustomResourceDefinition is not installed yet. An API server without
        aggregated discovery gives no texts.
        """
        try:
            documents = [parsed(await self._upstream.read(path, _AGGREGATED)) for path in ("/api", "/apis")]
        except ApiError:
            return []
        served: dict[str, dict[str, set[str]]] = {}
        for document in documents:
            for group in document.get("items") or ():
                names = served.setdefault(str((group.get("metadata") or {}).get("name", "")), {})
                for version in group.get("versions") or ():
                    for resource in version.get("resources") or ():
                        names.setdefault(str(resource.get("resource", "")), set()).update(_other_names(resource))
        if not any(served.values()):
            return []
        return [text for rule in rules for entry in rule.match for text in _missing(rule.name, entry.groups, entry.resources, served)]


def _other_names(resource: dict[str, Any]) -> set[str]:
    """Return the names by which people know a resource, in lower case."""
    kind = str((resource.get("responseKind") or {}).get("kind", "")).lower()
    return {str(resource.get("singularResource", "")), kind, *map(str, resource.get("shortNames") or ())} - {""}


def _missing(
    rule: str, groups: frozenset[str] | None, resources: frozenset[tuple[str, str]] | None, served: dict[str, dict[str, set[str]]]
) -> Iterable[str]:
    within = list(served.values()) if groups is None or "*" in groups else [served[group] for group in groups if group in served]
    for group in sorted((groups or frozenset()) - served.keys() - {"*"}):
        yield f'rule {rule}: the cluster has no API group "{group}"' + (', write "" for the core group' if group in ("core", "v1") else "")
    for name, _ in sorted(resources or ()):
        if name == "*" or not within or any(name in names for names in within):
            continue
        near = sorted({plural for names in within for plural, others in names.items() if name.lower() in others or plural == f"{name}s"})
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        yield f'rule {rule}: the cluster has no resource "{name}"{f" in {_shown(groups)}" if groups else ""}{hint}'


def _shown(groups: frozenset[str]) -> str:
    return "the groups " + ", ".join(f'"{group}"' for group in sorted(groups))
