"""Renders objects as responses: as plain objects, Tables or metadata only, in the form that the request accepts."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from kubeloop.apiserver.handlers.watch import FormMissing, WatchForm
from kubeloop.apiserver.registry.objects import Objects, StoredObject
from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.apiserver.store.reader import Page
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.encoding import decode, encode, encode_sorted, list_item
from kubeloop.endpoints.negotiation import JSON, PROTOBUF, Accepted
from kubeloop.endpoints.tables import INCLUDE_OBJECT, partial_list, partial_object, table
from kubeloop.serving.answer import Answer
from kubeloop.serving.request import Request
from kubeloop.timing import Clock
from kubeloop.types import JSONObject

if TYPE_CHECKING:
    from kubeloop.apiserver.handlers.protobuf_forms import ProtobufEncoder


class Renderer:
    """Renders objects as responses. Raises NotAcceptable if a list form is requested for one object, or an object form for a list."""

    def __init__(self, objects: Objects, clock: Clock) -> None:
        self._objects = objects
        self._clock = clock

    @cached_property
    def _protobuf(self) -> ProtobufEncoder:
        # Imported at the first use, which saves some milliseconds at the start.
        from kubeloop.apiserver.handlers.protobuf_forms import ProtobufEncoder

        return ProtobufEncoder(self._objects)

    def object(
        self,
        resource: ServedResource,
        accepted: Accepted,
        request: Request,
        obj: JSONObject,
        *,
        stored: StoredObject | None = None,
        status: int = 200,
    ) -> Answer:
        """Return a response with an object.

        Args:
            resource: The resource.
            accepted: Media type and form that the request accepts.
            request: The request.
            obj: The object.
            stored: Its stored form, whose bytes need no encoding; None: encode ``obj``.
            status: Status code.

        Returns:
            The answer.

        Raises:
            BadRequest: A parameter of the form is invalid.
            NotAcceptable: The request accepts only a form for lists.
        """
        match accepted.form:
            case "Table":
                return Answer(status, object=self._table(resource, accepted, _include(request), [obj], obj["metadata"]))
            case "PartialObjectMetadata":
                return Answer(status, object=_versioned(partial_object(obj), accepted))
            case "PartialObjectMetadataList":
                raise api_errors.unacceptable_form(
                    f"you requested PartialObjectMetadataList, but the requested object is not a list ({_type(resource)})"
                )
        if stored is not None and accepted.media_type == JSON:
            return Answer(status, body=self._objects.wire(resource, stored.kv), content_type=JSON)
        if stored is not None and accepted.media_type == PROTOBUF:
            body = self._protobuf.object(resource, stored.kv)
            if body is not None:
                return Answer(status, body=body, content_type=PROTOBUF)
        if resource.custom and accepted.media_type == JSON:
            return Answer(status, body=encode_sorted(obj), content_type=JSON)
        return Answer(status, object=obj)

    def page(self, resource: ServedResource, accepted: Accepted, request: Request, page: Page) -> Answer:
        """Return a response with a page of a list.

        Args:
            resource: The resource.
            accepted: Media type and form that the request accepts.
            request: The request.
            page: The page.

        Returns:
            The answer.

        Raises:
            BadRequest: A parameter of the form is invalid.
            NotAcceptable: The request accepts only a form for single objects.
        """
        metadata: JSONObject = {"resourceVersion": str(page.revision)}
        if page.continue_token:
            metadata["continue"] = page.continue_token
            if page.remaining is not None:
                metadata["remainingItemCount"] = page.remaining
        match accepted.form:
            case "Table":
                trees = [self._objects.tree(resource, kv) for kv in page.items]
                return Answer(object=self._table(resource, accepted, _include(request), trees, metadata))
            case "PartialObjectMetadataList":
                trees = [self._objects.tree(resource, kv) for kv in page.items]
                return Answer(object=_versioned(partial_list(trees, metadata), accepted, items=True))
            case "PartialObjectMetadata":
                raise api_errors.unacceptable_form(
                    f"you requested PartialObjectMetadata, but the requested object is a list ({_type(resource)}List)"
                )
        list_kind = resource.list_kind or f"{resource.kind}List"
        if accepted.media_type == PROTOBUF:
            packed = self._protobuf.page(resource, list_kind, metadata, page.items)
            if packed is not None:
                return Answer(body=packed, content_type=PROTOBUF)
        if resource.custom:
            metadata = {"continue": "", **metadata}
        if self._objects.is_plain(resource):
            items = b",".join(list_item(kv.value, kv.mod_revision) for kv in page.items)
        else:
            items = b",".join(self._item(resource, self._objects.tree(resource, kv)) for kv in page.items)
        head = {"kind": list_kind, "apiVersion": resource.gvk.api_version, "metadata": metadata}
        if resource.custom:
            body = b'{"apiVersion":%b,"items":[%b],"kind":%b,"metadata":%b}' % (
                *(encode(resource.gvk.api_version), items),
                *(encode(list_kind), encode_sorted(metadata)),
            )
        else:
            body = encode(head)[:-1] + b',"items":[' + items + b"]}"
        if accepted.media_type == JSON:
            return Answer(body=body, content_type=JSON)
        return Answer(object=decode(body))

    @staticmethod
    def _item(resource: ServedResource, obj: JSONObject) -> bytes:
        """Return an item of a list. Items of custom resources have kind and apiVersion, items of built-in kinds do not."""
        if resource.custom:
            return encode_sorted(obj)
        return encode({name: value for name, value in obj.items() if name not in ("kind", "apiVersion")})

    def watch_form(self, resource: ServedResource, accepted: Accepted, request: Request) -> WatchForm:
        """Return the form of watch events. A form for lists raises FormMissing at the first event.

        Raises:
            BadRequest: ``includeObject`` is invalid.
        """
        name = f"{accepted.media_type} {accepted.form} {accepted.version}"
        pack = protobuf_event if accepted.media_type == PROTOBUF else None
        match accepted.form:
            case "Table":
                include = _include(request)

                def as_table(obj: JSONObject, first: bool) -> JSONObject:
                    return self._table(resource, accepted, include, [obj], obj["metadata"], headers=first)

                return WatchForm(f"{name} {include}", as_table, pack)
            case "PartialObjectMetadata":
                return WatchForm(name, lambda obj, _: _versioned(partial_object(obj), accepted), pack)
            case "PartialObjectMetadataList":
                return WatchForm(name, _no_list, pack)
        if pack is None:
            return WatchForm(name)
        return WatchForm(name, lambda obj, _: obj, pack, lambda type_, kv: self._protobuf.event(type_, resource, kv))

    def _table(
        self,
        resource: ServedResource,
        accepted: Accepted,
        include: str,
        trees: list[JSONObject],
        metadata: JSONObject,
        *,
        headers: bool = True,
    ) -> JSONObject:
        now, columns = self._clock.wall().timestamp(), resource.columns if resource.custom else None
        rows = table(resource.gvr.group_resource, trees, metadata, now=now, columns=columns, include=include, headers=headers)
        return _versioned(rows, accepted)


def _no_list(*_: object) -> JSONObject:
    """Reject list forms of watch events."""
    raise FormMissing


def protobuf_event(type_: str, obj: JSONObject) -> bytes:
    """Return the frame of a watch event in protobuf."""
    from kubeloop.codec import protobuf

    return protobuf.encode_event(type_, protobuf.encode(obj))


def _include(request: Request) -> str:
    include = request.parameter("includeObject")
    if include not in INCLUDE_OBJECT:
        quoted = encode(include).decode()
        reason = f"Invalid value: {quoted}: must be 'Metadata', 'Object', 'None', or empty"
        raise api_errors.bad_request(f"Unable to convert to Table as requested: includeObject: {reason}")
    return include


def _versioned(tree: JSONObject, accepted: Accepted, *, items: bool = False) -> JSONObject:
    """Set the version of meta.k8s.io that the request accepts in a Table or partial object, in place, and return it."""
    if accepted.version == "v1":
        return tree
    api_version = f"meta.k8s.io/{accepted.version}"
    tree["apiVersion"] = api_version
    for row in tree.get("rows") or ():
        if (row.get("object") or {}).get("kind") == "PartialObjectMetadata":
            row["object"]["apiVersion"] = api_version
    if items:
        tree["items"] = [{**item, "apiVersion": api_version} for item in tree["items"] or ()] or None
    return tree


def _type(resource: ServedResource) -> str:
    """Return the name of the Go type in upstream's messages about unacceptable forms."""
    if resource.custom:
        return "*unstructured.Unstructured"
    return f"*{resource.gvr.group.partition('.')[0] or 'core'}.{resource.kind}"
