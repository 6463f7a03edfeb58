"""The verbs of the Kubernetes API, typed: ``await client.get(Pod, "web-0", namespace="shop")`` is a ``Pod``.

One client is one cluster and one user; several in one process are the normal case.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, TypeVar, overload

import msgspec

from kubeloop.client.lists import ListCall, ObjectList
from kubeloop.client.mapper import Mapper
from kubeloop.client.mapping import ResourceMapping
from kubeloop.client.options import PAGE_SIZE, DeleteOptions, ListOptions, Match, Propagation, WatchOptions, WriteOptions
from kubeloop.client.selector_text import Fields, Labels
from kubeloop.client.streams.methods import PodStreams
from kubeloop.client.waiting import wait_for, wait_gone
from kubeloop.client.watches import Watch
from kubeloop.client.writes import Listener, Verb, WriteListeners, dry
from kubeloop.codec import decode, decode_list, encode, require_document
from kubeloop.config import load_config
from kubeloop.meta import PartialObject, Resource, Status
from kubeloop.timing import Clock, SystemClock
from kubeloop.transport import Query, Response, Transport

if TYPE_CHECKING:
    from kubeloop.api.autoscaling.v1 import Scale

R = TypeVar("R", bound=Resource)

PatchType: TypeAlias = Literal["merge", "json", "strategic", "apply"]
Patch: TypeAlias = Mapping[str, Any] | builtins.list[Any] | bytes

_PATCHES: dict[PatchType, str] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
_PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class Client(PodStreams):
    """The API of one cluster as one user. For one event loop; use it as ``async with``, or call ``close``.

    Namespaces
        Where one object is meant, ``namespace=None`` is the object's own, else the configuration's (``client.namespace``).
        Where many are meant (list, watch), ``namespace=None`` is all namespaces.

    Raises
        ``ApiError`` by reason (``NotFound``, ``Conflict``, ``Invalid`` with causes ...): the server refused.
        ``TransportError``: no answer; a write may still have been carried out.
        ``UnknownKind``: the kind is not known here or not served. ``DecodeError``: the answer is not of the kind asked for.
        ``ValueError``: a name or namespace that cannot be one.
    """

    def __init__(self, transport: Transport, *, namespace: str | None = None, clock: Clock | None = None) -> None:
        self.transport = transport
        self.namespace = namespace or transport.config.namespace
        self.mapper = Mapper(transport)
        self._clock: Clock = clock or SystemClock()
        self._writes = WriteListeners()

    @classmethod
    def from_config(cls, kubeconfig: str | Path | None = None, context: str | None = None) -> Self:
        """A client for a kubeconfig, by default KUBECONFIG, ~/.kube/config or the pod's own cluster (``load_config``).

        Raises:
            ConfigError: nothing usable was found.
        """
        return cls(Transport(load_config(kubeconfig, context)))

    @property
    def cluster(self) -> str:
        """The cluster's name, as in ``ObjectKey.cluster``."""
        return self.transport.cluster

    @property
    def clock(self) -> Clock:
        """What its delays and deadlines are measured with."""
        return self._clock

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; running calls and watches end with ``TransportError``."""
        await self.transport.close()

    def on_write(self, listener: Listener) -> Callable[[], None]:
        """Call ``listener`` with a ``Write`` after each write that the server has stored, before the write returns to its caller.

        Returns what removes it. While nobody listens, writes pay nothing. What a listener raises is logged, not raised.
        """
        return self._writes.add(listener)

    async def mapping(self, kind: type[Resource]) -> ResourceMapping:
        """Resource and scope of a kind: from its class, or from the server's discovery where the class does not know.

        Raises:
            UnknownKind: the server serves no such kind.
        """
        return await self.mapper.mapping(kind)

    async def get(self, kind: type[R], name: str, *, namespace: str | None = None) -> R:
        """Read one object at its newest version."""
        path = await self._path(kind, name, namespace)
        return decode(kind, (await self.transport.request("GET", path)).body)

    async def get_metadata(self, kind: type[Resource], name: str, *, namespace: str | None = None) -> PartialObject:
        """Read an object's metadata only; the server sends nothing else."""
        path = await self._path(kind, name, namespace)
        return decode(PartialObject, (await self.transport.request("GET", path, accept=_PARTIAL)).body)

    def list(
        self,
        kind: type[R],
        *,
        namespace: str | None = None,
        labels: Labels | None = None,
        field_selector: Fields | None = None,
        limit: int = PAGE_SIZE,
        resource_version: str | None = None,
        match: Match | None = None,
    ) -> ListCall[R]:
        """List objects, of all namespaces unless one is given: ``await`` it for an ``ObjectList``, or ``async for`` over it.

        ``limit`` is the size of the pages asked for, not of the result.
        """
        options = ListOptions(labels=labels, field_selector=field_selector, limit=limit, resource_version=resource_version, match=match)
        return self._list_call(kind, namespace, options)

    def list_metadata(
        self,
        kind: type[Resource],
        *,
        namespace: str | None = None,
        labels: Labels | None = None,
        field_selector: Fields | None = None,
        limit: int = PAGE_SIZE,
    ) -> ListCall[PartialObject]:
        """As ``list``, metadata only."""

        async def fetch(options: ListOptions) -> ObjectList[PartialObject]:
            path = (await self.mapping(kind)).path(namespace)
            return _objects(PartialObject, await self.transport.request("GET", path, query=options.query(), accept=_PARTIAL_LIST))

        return ListCall(fetch, ListOptions(labels=labels, field_selector=field_selector, limit=limit))

    async def list_page(self, kind: type[R], options: ListOptions, *, namespace: str | None = None) -> ObjectList[R]:
        """One page, exactly as ``options`` ask; ``continue_token`` of the answer goes into the options of the next."""
        path = (await self.mapping(kind)).path(namespace)
        return _objects(kind, await self.transport.request("GET", path, query=options.query()))

    def watch(
        self,
        kind: type[R],
        *,
        namespace: str | None = None,
        labels: Labels | None = None,
        field_selector: Fields | None = None,
        resource_version: str | None = None,
        timeout_seconds: int | None = None,
    ) -> Watch[R]:
        """Events of all namespaces unless one is given. From ``resource_version`` on, or first all that is there as ADDED (see ``Watch``).

        ``timeout_seconds`` is after how long the server ends one connection; the watch goes on with another.
        """
        options = WatchOptions(
            labels=labels, field_selector=field_selector, resource_version=resource_version, timeout_seconds=timeout_seconds
        )

        async def locate() -> str:
            return (await self.mapping(kind)).path(namespace)

        def list_all(first: ListOptions) -> ListCall[R]:
            return self._list_call(kind, namespace, first)

        return Watch(self.transport, locate, kind, list_all, options, self._clock)

    async def create(self, obj: R, *, namespace: str | None = None, options: WriteOptions | None = None) -> R:
        """Store a new object; gives it back as the server stored it, defaults filled in.

        Raises:
            AlreadyExists: the name is taken. Invalid: with a cause per field.
        """
        mapping = await self.mapping(type(obj))
        path = mapping.path(self._namespace_of(mapping, namespace or obj.metadata.namespace))
        sent = self._writes.now()
        answer = await self.transport.request("POST", path, query=_query(options), body=encode(obj))
        return await self._stored("create", decode(type(obj), answer.body), options, sent)

    async def update(self, obj: R, *, namespace: str | None = None, options: WriteOptions | None = None) -> R:
        """Replace an object by ``obj``: the document that it was read from, with the caller's changes; unknown fields survive.

        With ``metadata.resource_version`` set (as in every object that was read) the write is refused if somebody wrote in between.

        Raises:
            Conflict: somebody did. IncompleteObject: only a part of the object is known here, and sending that would erase the rest.
        """
        return await self._put(obj, namespace, options, None)

    async def update_status(self, obj: R, *, namespace: str | None = None, options: WriteOptions | None = None) -> R:
        """Replace an object's status; the spec is left as it is, whatever ``obj`` says (some kinds take labels and annotations too).

        Raises:
            Conflict, IncompleteObject: as ``update``. NotFound: also where the kind has no status subresource.
        """
        return await self._put(obj, namespace, options, "status")

    async def patch(
        self,
        kind: type[R],
        name: str,
        patch: Patch,
        *,
        type: PatchType = "merge",  # noqa: A002 - the field's own word
        namespace: str | None = None,
        subresource: str | None = None,
        options: WriteOptions | None = None,
    ) -> R:
        """Change parts of an object. ``patch`` is a tree, for ``json`` a list of operations, or the encoded bytes.

        ``strategic`` is for built-in kinds only; ``apply`` is server-side apply and needs ``options.field_manager``.

        Raises:
            Conflict: the patch names a resourceVersion that is no longer current, or applied fields belong to another manager.
        """
        path = await self._path(kind, name, namespace, subresource)
        body = patch if isinstance(patch, bytes) else msgspec.json.encode(patch)
        answer = await self.transport.request("PATCH", path, query=_query(options), body=body, content_type=_PATCHES[type])
        return await self._stored("patch", decode(kind, answer.body), options)

    @overload
    async def delete(
        self,
        target: type[R],
        name: str,
        *,
        namespace: str | None = ...,
        propagation: Propagation | None = ...,
        grace_period: int | None = ...,
        options: DeleteOptions | None = ...,
    ) -> R | Status: ...

    @overload
    async def delete(
        self,
        target: R,
        *,
        propagation: Propagation | None = ...,
        grace_period: int | None = ...,
        options: DeleteOptions | None = ...,
    ) -> R | Status: ...

    async def delete(
        self,
        target: type[R] | R,
        name: str | None = None,
        *,
        namespace: str | None = None,
        propagation: Propagation | None = None,
        grace_period: int | None = None,
        options: DeleteOptions | None = None,
    ) -> R | Status:
        """Ask for an object to be deleted, by kind and name or by the object itself.

        Gives the object if it goes on existing for a while (finalizers, a pod's grace period) or the server hands out its last state,
        else a ``Status``. An object given is deleted only if it is still the same one (its uid is a precondition): a new one of the
        same name stays. ``grace_period`` in seconds.

        Raises:
            NotFound: it is not there. Conflict: a precondition does not hold.
        """
        options = options or DeleteOptions()
        if isinstance(target, Resource):
            kind, name, namespace = builtins.type(target), target.metadata.name, target.metadata.namespace
            options = msgspec.structs.replace(options, uid=options.uid or target.metadata.uid)
        else:
            kind = target
        if not name:
            raise ValueError(f"delete needs the name of the {kind.__name__}; delete_collection deletes many")
        if propagation is not None:
            options = msgspec.structs.replace(options, propagation=propagation)
        if grace_period is not None:
            options = msgspec.structs.replace(options, grace_period=grace_period)
        path = await self._path(kind, name, namespace)
        answer = await self.transport.request("DELETE", path, body=options.body())
        gone = _deleted(kind, answer)
        if self._writes and not options.dry_run:
            mapping = await self.mapping(kind)
            self._writes.deleted(mapping, self._namespace_of(mapping, namespace) or "", name, options.uid, gone)
        return gone

    async def delete_collection(
        self,
        kind: type[R],
        *,
        namespace: str | None = None,
        labels: Labels | None = None,
        field_selector: Fields | None = None,
        options: DeleteOptions | None = None,
    ) -> ObjectList[R] | Status:
        """Delete all objects of ONE namespace (default: ``client.namespace``) that match; all of them if no selector is given.

        Raises:
            MethodNotAllowed: the kind does not offer it.
        """
        mapping = await self.mapping(kind)
        path = mapping.path(self._namespace_of(mapping, namespace))
        query = ListOptions(labels=labels, field_selector=field_selector, limit=0).query()
        answer = await self.transport.request("DELETE", path, query=query, body=(options or DeleteOptions()).body())
        return _status(answer) or _objects(kind, answer)

    async def get_scale(self, kind: type[Resource], name: str, *, namespace: str | None = None) -> Scale:
        """How many replicas are wanted and there.

        Raises:
            NotFound: also where the kind has no scale subresource.
        """
        from kubeloop.api.autoscaling.v1 import Scale

        path = await self._path(kind, name, namespace, "scale")
        return decode(Scale, (await self.transport.request("GET", path)).body)

    async def set_scale(self, kind: type[Resource], name: str, replicas: int, *, namespace: str | None = None) -> Scale:
        """Ask for so many replicas, whatever was asked for before.

        Raises:
            NotFound: as ``get_scale``. Invalid: a negative number.
        """
        from kubeloop.api.autoscaling.v1 import Scale

        path = await self._path(kind, name, namespace, "scale")
        body = msgspec.json.encode({"spec": {"replicas": replicas}})
        return decode(Scale, (await self.transport.request("PATCH", path, body=body, content_type=_PATCHES["merge"])).body)

    async def evict(self, pod: str, *, namespace: str | None = None, grace_period: int | None = None) -> None:
        """Delete a pod if its disruption budgets allow it. ``grace_period`` in seconds.

        Raises:
            TooManyRequests: a budget does not allow it now; the text says which. NotFound: no such pod.
        """
        from kubeloop.api.core.v1 import Pod

        mapping = await self.mapping(Pod)
        where = self._namespace_of(mapping, namespace)
        eviction: dict[str, Any] = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": where}}
        if grace_period is not None:
            eviction["deleteOptions"] = {"gracePeriodSeconds": grace_period}
        await self.transport.request("POST", mapping.path(where, pod, "eviction"), body=msgspec.json.encode(eviction))

    async def bind(self, pod: str, node: str, *, namespace: str | None = None, uid: str = "") -> None:
        """Assign a pod to a node, as a scheduler does; with ``uid`` only that very pod.

        Raises:
            Conflict: it is assigned already, or another pod has its name now. NotFound: no such pod.
        """
        from kubeloop.api.core.v1 import Pod

        mapping = await self.mapping(Pod)
        where = self._namespace_of(mapping, namespace)
        metadata = {"name": pod, "namespace": where} | ({"uid": uid} if uid else {})
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        await self.transport.request("POST", mapping.path(where, pod, "binding"), body=msgspec.json.encode(binding))

    async def wait_for(
        self, kind: type[R], name: str, predicate: Callable[[R], object], *, timeout: float, namespace: str | None = None
    ) -> R:
        """Wait until the object is there and ``predicate`` of it is true; gives that state. Seconds.

        Raises:
            DeadlineError: ``timeout`` passed; the text says what the object was like, or that it was never there.
        """
        mapping = await self.mapping(kind)
        return await wait_for(self, kind, name, predicate, timeout, self._namespace_of(mapping, namespace))

    async def wait_gone(self, kind: type[Resource], name: str, *, timeout: float, namespace: str | None = None, uid: str = "") -> None:
        """Wait until there is no such object (or, with ``uid``, not that one). Seconds.

        Raises:
            DeadlineError: ``timeout`` passed; the text names finalizers that hold the object.
        """
        mapping = await self.mapping(kind)
        await wait_gone(self, kind, name, timeout, self._namespace_of(mapping, namespace), uid)

    async def _put(self, obj: R, namespace: str | None, options: WriteOptions | None, subresource: str | None) -> R:
        body = require_document(obj)
        path = await self._path(type(obj), obj.metadata.name, namespace or obj.metadata.namespace, subresource)
        answer = await self.transport.request("PUT", path, query=_query(options), body=body)
        return await self._stored("update", decode(type(obj), answer.body), options)

    async def _stored(self, verb: Verb, obj: R, options: WriteOptions | None, sent: float | None = None) -> R:
        """Tell the listeners what was written. The answer was decoded as its kind: so it is the object, not a subresource's own kind."""
        if self._writes and not dry(options):
            self._writes.stored(await self.mapping(type(obj)), verb, obj, sent)
        return obj

    async def _path(self, kind: type[Resource], name: str, namespace: str | None, subresource: str | None = None) -> str:
        mapping = await self.mapping(kind)
        if not name:
            raise ValueError(f"the {kind.__name__} has no name; set metadata.name")
        return mapping.path(self._namespace_of(mapping, namespace), name, subresource)

    def _namespace_of(self, mapping: ResourceMapping, namespace: str | None) -> str | None:
        return namespace or (self.namespace if mapping.namespaced else None)

    def _list_call(self, kind: type[R], namespace: str | None, options: ListOptions) -> ListCall[R]:
        async def fetch(page: ListOptions) -> ObjectList[R]:
            return await self.list_page(kind, page, namespace=namespace)

        return ListCall(fetch, options)


def _query(options: WriteOptions | None) -> Query | None:
    return options.query() if options is not None else None


def _objects(kind: type[R], answer: Response) -> ObjectList[R]:
    items, metadata = decode_list(kind, answer.body)
    return ObjectList(items, metadata)


def _status(answer: Response) -> Status | None:
    """The Status in the answer, if it is one."""
    try:
        status = msgspec.json.decode(answer.body, type=Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None  # an object whose fields of the same names are of other types
    return status if status.kind == "Status" and status.api_version == "v1" else None


def _deleted(kind: type[R], answer: Response) -> R | Status:
    return _status(answer) or decode(kind, answer.body)
