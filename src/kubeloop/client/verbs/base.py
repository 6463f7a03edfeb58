"""What the groups of verbs share: a transport, the mapping of kinds to paths, and what a client does unless it is told otherwise."""

from __future__ import annotations

from typing import TypeVar

from kubeloop.client.mapper import Mapper
from kubeloop.client.mapping import ALL_NAMESPACES, ResourceMapping, require_text
from kubeloop.client.options import WriteOptions
from kubeloop.client.write_hooks import Verb, WriteListeners, dry
from kubeloop.meta import Resource
from kubeloop.meta.type_checks import require_kind
from kubeloop.timing import Clock
from kubeloop.transport import Query, Transport

R = TypeVar("R", bound=Resource)


class Verbs:
    """The base of each group. Made by ``Client`` only."""

    transport: Transport
    namespace: str
    mapper: Mapper
    clock: Clock
    _writes: WriteListeners
    _defaults: WriteOptions
    _confined: bool

    async def mapping(self, kind: type[Resource]) -> ResourceMapping:
        """Resource and scope of a kind: from its class, or from the server's discovery where the class does not know.

        Raises:
            UnknownKind: the server serves no such kind. TypeError: ``kind`` is no class of objects.
        """
        require_kind(kind)
        return await self.mapper.mapping(kind)

    async def _path(self, kind: type[Resource], name: str, namespace: str | None, subresource: str | None = None) -> str:
        """The path of one object."""
        mapping = await self.mapping(kind)
        if name is not None:
            require_text(name, "name")
        if not name:
            raise ValueError(f"no name was given for the {kind.__name__}; an object has it in metadata.name")
        return mapping.path(self._namespace_of(mapping, namespace), name, subresource)

    async def _collection(self, kind: type[Resource], namespace: str | None) -> str:
        """The path of many objects: those of the namespace given, else of the client's; ``ALL_NAMESPACES``: of all namespaces."""
        mapping = await self.mapping(kind)
        if namespace == ALL_NAMESPACES and not (self._confined and mapping.namespaced):
            return mapping.path()
        if namespace == "" and mapping.namespaced:
            raise ValueError(
                f'namespace="": leave it out for the client\'s namespace "{self.namespace}", or write namespace=ALL_NAMESPACES '
                "(from kubeloop import ALL_NAMESPACES)"
            )
        return mapping.path(self._namespace_of(mapping, namespace))

    def _namespace_of(self, mapping: ResourceMapping, namespace: str | None) -> str | None:
        """Where one object is: the namespace given, else the client's own."""
        if not mapping.namespaced:
            return namespace or None
        if namespace:
            require_text(namespace, "namespace")
        if namespace and self._confined and namespace != self.namespace:
            shown = "ALL_NAMESPACES" if namespace == ALL_NAMESPACES else f'"{namespace}"'
            raise ValueError(f'namespace {shown} is not that of this client, which is for "{self.namespace}" only (client.in_namespace)')
        return namespace or self.namespace

    def _options(self, options: WriteOptions | None) -> WriteOptions:
        """What was asked for, completed by what this client does always."""
        return self._defaults if options is None else options.over(self._defaults)

    def _query(self, options: WriteOptions | None) -> Query:
        return self._options(options).query()

    async def _stored(self, verb: Verb, obj: R, options: WriteOptions | None, sent: float | None = None) -> R:
        """Tell the listeners what was written. The answer was decoded as its kind: so it is the object, not a subresource's own kind."""
        if self._writes and not dry(self._options(options)):
            self._writes.stored(await self.mapping(type(obj)), verb, obj, sent)
        return obj
