"""REST mapping: the resource and the URL of each kind. A class states its resource; discovery finds that of other kinds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from kubeloop.meta.errors import UnknownKind
from kubeloop.meta.kinds import GroupVersion, GroupVersionKind, GroupVersionResource
from kubeloop.meta.names import dns1123_label
from kubeloop.meta.resource import Resource, kind_info
from kubeloop.meta.type_checks import described
from kubeloop.timing import Clock, SystemClock
from kubeloop.transport import Transport

if TYPE_CHECKING:
    from pathlib import Path

    from kubeloop.client.discovery import ApiResource, Discovered
    from kubeloop.client.discovery.disk_cache import CachedDiscovery
    from kubeloop.client.discovery.openapi import OpenApiDocuments

#: ``namespace=ALL_NAMESPACES`` of list, watch, wait_for_events and informers: the objects of all namespaces (``kubectl --all-namespaces``).
ALL_NAMESPACES: Final = "*"


class ResourceMapping(msgspec.Struct, frozen=True):
    """The location of a kind's objects: resource, kind and scope. ``namespaced``: their paths contain a namespace.

    >>> mapping = await client.mapping(Pod)
    >>> mapping.path("shop", "web-0", "log")
    '/api/v1/namespaces/shop/pods/web-0/log'
    >>> mapping.path()
    '/api/v1/pods'
    """

    gvr: GroupVersionResource
    gvk: GroupVersionKind
    namespaced: bool

    @property
    def kind(self) -> str:
        return self.gvk.kind

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Return the path of one object, or of all objects in a namespace, or of all objects if ``namespace`` is not set.

        Raises:
            ValueError: A name or namespace that would lead to another path, a namespace for a cluster-scoped kind, or no namespace for one
                object of a namespaced kind.
        """
        parts = [self.gvr.group_version.path]
        if namespace:
            require_text(namespace, "namespace")
            if not self.namespaced:
                raise ValueError(f'{self.gvk.kind} is cluster-scoped: it has no namespace, "{namespace}" was given')
            fault = namespace_error(namespace)
            if fault:
                raise ValueError(fault)
            parts += ["namespaces", namespace]
        elif self.namespaced and name:
            raise ValueError(f'a namespace is needed to name one {self.gvk.kind} ("{name}")')
        parts.append(self.gvr.resource)
        if name:
            parts.append(segment(name, "name"))
        if subresource:
            if not name:
                raise ValueError(f'a name is needed for the subresource "{subresource}" of {self.gvr.resource}')
            parts += [segment(part, "subresource") for part in subresource.split("/")]
        return "/".join(parts)


def require_text(value: object, argument: str) -> None:
    """Raise TypeError if ``value`` is not a string; ``argument`` names it."""
    if not isinstance(value, str):
        raise TypeError(f"{argument}={described(value)}: must be text")


def namespace_error(namespace: str) -> str:
    """Return the reason why a text is not a valid namespace, in Kubernetes' words, or an empty text if it is valid."""
    require_text(namespace, "namespace")
    if namespace == ALL_NAMESPACES:
        return 'namespace=ALL_NAMESPACES ("*") names no single namespace; only list, watch, until and informers take all namespaces'
    faults = dns1123_label(namespace)
    return f'namespace "{namespace}": {"; ".join(faults)}' if faults else ""


def segment(value: str, argument: str) -> str:
    """Return a name unchanged after checking that it is one segment of a path.

    Raises:
        ValueError: It is not exactly one segment (apimachinery pkg/api/validation/path). TypeError: it is not a string.
    """
    require_text(value, argument)
    if value in ("", ".", "..") or "/" in value or "%" in value:
        raise ValueError(f'{argument} "{value}" cannot be used in a path: it must not be empty, ".", "..", or hold "/" or "%"')
    if not value.isascii() or not value.isprintable() or any(one in value for one in ' ?#"<>\\^`{|}'):
        raise ValueError(f'{argument} "{value}" cannot be used in a path: it holds characters that no name in Kubernetes has')
    return value


T = TypeVar("T")

#: Maximum number of group versions in a message.
_SHOWN = 5


class Mapper:
    """The kinds and resources of one server. It requests discovery at the first use, and again when a lookup fails.

    >>> (await client.mapper.find("deploy")).gvr.resource
    'deployments'
    >>> (await client.mapper.mapping(Deployment)).path("shop")
    '/apis/apps/v1/namespaces/shop/deployments'

    Guarantees
        If the server of one group is down, other groups work; a lookup in that group raises an error with the group and the reason.
        Kinds that are installed later are found. Failed lookups request discovery up to ten times without a pause, then at most every ten
        seconds.
    """

    def __init__(self, transport: Transport, *, clock: Clock | None = None) -> None:
        self._transport = transport
        self._clock: Clock = clock or SystemClock()
        self._known: dict[type[Resource], ResourceMapping] = {}
        self._kept: CachedDiscovery | None = None
        self._documents: OpenApiDocuments | None = None

    async def mapping(self, cls: type[Resource]) -> ResourceMapping:
        """Return the location of the objects of ``cls``.

        Raises:
            UnknownKind: The class names no kind, or the server does not serve it.
            ApiError, TransportError: The lookup needed discovery, which failed.
        """
        known = self._known.get(cls)
        if known is None:
            info = kind_info(cls)
            if info.plural is not None and info.namespaced is not None:
                known = ResourceMapping(info.gvr, info.gvk, info.namespaced)
            else:
                found = await self.resource_of(info.gvk)
                known = ResourceMapping(found.gvr, found.gvk, found.namespaced)
            self._known[cls] = known
        return known

    async def resource_of(self, gvk: GroupVersionKind) -> ApiResource:
        """Return the resource of a kind.

        Raises:
            UnknownKind: The server does not serve the kind, even after another discovery request.
        """
        found, discovered = await self._look(lambda resources: _of_kind(resources, gvk), gvk.group_version)
        if found is None:
            raise UnknownKind(self._unknown(gvk, discovered))
        return found

    async def find(self, name: str) -> ApiResource:
        """Return the resource with a name as kubectl reads it: plural, singular, short name or kind, in any case.

        The name may end with ``.GROUP`` or ``.VERSION.GROUP``. Of several groups the one with the highest priority wins, the core group
        first. A short name of several resources is logged.

        Raises:
            UnknownKind: There is no such resource.
        """
        found = await self.find_all(name)
        from kubeloop.client.discovery.resources import ambiguity_warning

        if warning := ambiguity_warning(name, found):
            import logging

            logging.getLogger("kubeloop.client").warning("%s: %s", self._transport.config.server, warning)
        return found[0]

    async def find_all(self, name: str) -> tuple[ApiResource, ...]:
        """Return all resources with a name as in ``find``, the result of ``find`` first.

        Raises:
            UnknownKind: There is no such resource.
        """
        from kubeloop.client.discovery.resources import find_resources

        found, discovered = await self._look(lambda resources: find_resources(resources, name) or None)
        if found is None:
            raise UnknownKind(self._nothing_called(name, discovered))
        return found

    async def expand(self, names: str) -> tuple[ApiResource, ...]:
        """Return the resources for an argument of ``kubectl get``: names as in ``find`` and categories (``all``), separated by commas.

        Each resource is returned once.

        Raises:
            UnknownKind: There is no such resource.
        """
        wanted: dict[ApiResource, None] = {}
        for name in names.split(","):
            of_category = (await self._kept_discovery().current()).category(name)
            for one in of_category or (await self.find(name),):
                wanted[one] = None
        return tuple(wanted)

    async def resources(self) -> tuple[ApiResource, ...]:
        """Return all resources in all versions, from the cache if possible."""
        return (await self._kept_discovery().current()).resources

    async def discovered(self) -> Discovered:
        """Return all resources, and the failed group versions with the reasons (``Discovered.fault``), from the cache if possible."""
        return await self._kept_discovery().current()

    @property
    def openapi(self) -> OpenApiDocuments:
        """The server's OpenAPI v3 documents."""
        if self._documents is None:
            from kubeloop.client.discovery.openapi import OpenApiDocuments

            self._documents = OpenApiDocuments(self._transport)
        return self._documents

    def keep_on_disk(self, folder: Path | str | None = None, *, ttl: float | None = None) -> None:
        """Read discovery from a file that is younger than ``ttl`` seconds, and write new responses to it.

        Use it in programs that run often and briefly. OpenAPI documents are cached in the same folder, by their hashes.

        Args:
            folder: The cache folder. None: kubectl's, KUBECACHEDIR or ``~/.kube/cache``.
            ttl: Maximum age of the file in seconds. None: six hours, as kubectl.
        """
        from pathlib import Path

        from kubeloop.client.discovery.disk_cache import TTL, DiscoveryFile

        folder = Path(folder) if folder is not None else None
        self._kept_discovery().file = DiscoveryFile(self._transport.config.server, folder=folder, ttl=TTL if ttl is None else ttl)
        self.openapi.keep_on_disk(folder)

    @property
    def fresh(self) -> bool:
        """Whether this client requested the cached resources itself. False: they come from a file."""
        return self._kept is not None and self._kept.fresh

    def forget(self) -> None:
        """Request the resources from the server at the next use, even if a file has them."""
        if self._kept is not None:
            self._kept.forget()
        self._known.clear()

    async def _look(self, find: Callable[[Discovered], T | None], version: GroupVersion | None = None) -> tuple[T | None, Discovered]:
        """Return the result of ``find``, in newer discovery if necessary, and the discovery that was searched last."""
        kept = self._kept_discovery()
        begun = kept.begun
        discovered = await kept.current()
        found = find(discovered)
        # A request that started after this lookup would return the same again, except for servers that had failed. A request that another
        # caller started before, and that was answered meanwhile, may miss a kind that was installed in between.
        answered, again = -1, _may_pass(discovered, version)
        while found is None and (answered < kept.answered <= begun or again):
            answered, again = kept.answered, False
            renewed = await kept.renewed(discovered, find, version)
            if renewed is discovered:
                break
            discovered, found = renewed, find(renewed)
        return found, discovered

    def _kept_discovery(self) -> CachedDiscovery:
        if self._kept is None:
            # Imported here, because programs with typed kinds need no discovery and start faster without it.
            from kubeloop.client.discovery.disk_cache import CachedDiscovery

            self._kept = CachedDiscovery(self._transport, self._clock)
        return self._kept

    def _nothing_called(self, name: str, discovered: Discovered) -> str:
        near = _similar(name.partition(".")[0].lower(), {one.gvr.resource for one in discovered.resources})
        hint = f"; did you mean {', '.join(near)}?" if near else "; is its CustomResourceDefinition installed?"
        unsure = f" ({discovered.fault})" if discovered.fault else ""
        return f'{self._transport.config.server} serves no resource "{name}"{hint}{unsure}'

    def _unknown(self, gvk: GroupVersionKind, discovered: Discovered) -> str:
        text = f'{self._transport.config.server} serves no kind "{gvk.kind}" in {gvk.api_version}'
        elsewhere = sorted({one.gvk.api_version for one in discovered.resources if one.gvk.kind == gvk.kind})
        if elsewhere:
            more = f" and {len(elsewhere) - _SHOWN} more" if len(elsewhere) > _SHOWN else ""
            return f"{text}; it serves {gvk.kind} in {', '.join(elsewhere[:_SHOWN])}{more}: correct apiVersion"
        failure = discovered.failure(gvk.group_version)
        if failure is not None:
            return f"{text}; the server behind {gvk.api_version} does not answer at the moment: see its APIService ({failure.why})"
        near = _similar(gvk.kind, {one.gvk.kind for one in discovered.resources})
        if near:
            return f"{text}; did you mean {', '.join(near)}?"
        return f"{text}; install the CustomResourceDefinition that defines it, or correct apiVersion and kind"


def _similar(word: str, known: set[str]) -> list[str]:
    import difflib

    return difflib.get_close_matches(word, sorted(known), 3)


def _may_pass(discovered: Discovered, version: GroupVersion | None) -> bool:
    failure = discovered.failure(version) if version is not None else None
    return failure is not None and failure.again


def _of_kind(discovered: Discovered, gvk: GroupVersionKind) -> ApiResource | None:
    # Several resources may have the same kind; the resource in the kind's group version takes precedence.
    of_kind = [one for one in discovered.resources if one.gvk == gvk]
    return next((one for one in of_kind if one.gvr.group_version == gvk.group_version), of_kind[0] if of_kind else None)
