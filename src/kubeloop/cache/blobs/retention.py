"""Retention: selects the parts of an object's document that the cache stores. All other modules see only the stored parts.

A stored document is plain JSON with ``kind`` and ``apiVersion``, which list items lack on the wire.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable
from typing import Any, Union, get_args, get_origin

import msgspec
from msgspec import Struct

from kubeloop.codec.paths import EACH, parse_path
from kubeloop.codec.projection import Projected
from kubeloop.codec.pruning import ManagedFieldsStripper, Pruning, covers
from kubeloop.meta import Resource
from kubeloop.meta.errors import KubeloopError
from kubeloop.meta.kinds import GroupVersionKind
from kubeloop.transport import logger_with_context
from kubeloop.types import JSONObject

_LOG = logger_with_context("kubeloop.cache")
#: Models of Kubernetes' own kinds are complete. Models of custom kinds may leave out fields.
_KNOWN = "kubeloop.api."


def warn_of_unknown(kind: type[Resource], paths: Iterable[str], description: str) -> None:
    """Log each path that does not exist in the model of a Kubernetes kind, with the name that was probably meant.

    ``description`` names the informer in the log.

    Custom kinds, keys of maps, and malformed paths (which are rejected elsewhere) are not checked. Takes about 0.1 ms per path.
    """
    if not kind.__module__.startswith(_KNOWN):
        return
    for path in paths:
        if found := _unknown(kind, path):
            name, meant = found
            hint = f'; did you mean "{meant}"?' if meant else "; a newer server may have it"
            _LOG.warning('%s: path "%s": %s has no field "%s"%s', description, path, kind.__name__, name, hint)


def _unknown(kind: type[Resource], path: str) -> tuple[str, str] | None:
    """Return the segment of a path that is not a field, and the corrected path up to there ("" if no field has a similar name).

    Return None if all segments are fields.
    """
    try:
        segments = parse_path(path)
    except ValueError:
        return None
    model: Any = kind
    done = ""
    for at, segment in enumerate(segments):
        if segment is EACH:
            if get_origin(model) is not list:
                return None
            (model,) = get_args(model)
            done += "[*]"
            continue
        if not isinstance(segment, str) or not isinstance(model, type) or not issubclass(model, msgspec.Struct):
            return None
        fields = {field.encode_name: field.type for field in msgspec.structs.fields(model)}
        if segment not in fields:
            if not fields or (at == 0 and segment in ("apiVersion", "kind")):
                return None
            import difflib

            alike = difflib.get_close_matches(segment, fields, 1)
            return f"{done}.{segment}".lstrip("."), f"{done}.{alike[0]}".lstrip(".") if alike else ""
        done = f"{done}.{segment}".lstrip(".")
        model = _without_none(fields[segment])
    return None


def _without_none(annotation: Any) -> Any:
    if get_origin(annotation) in (Union, types.UnionType):
        rest = [each for each in get_args(annotation) if each is not type(None)]
        return rest[0] if len(rest) == 1 else None
    return annotation


Transform = Callable[[JSONObject], JSONObject | None]
"""Changes an object's JSON tree before it is stored: it changes the tree in place and returns None, or it returns another tree."""

Buffer = bytes | memoryview

#: Always stored: the identity of an object, and the fields that heads, selectors and owner indexes read.
IDENTITY = tuple(
    f"metadata.{name}"
    for name in ("name", "namespace", "uid", "resourceVersion", "generation", "labels", "ownerReferences", "deletionTimestamp")
)
#: The kind of a server's response to a request for metadata only. Source: k8s.io/apimachinery pkg/apis/meta/v1 (PartialObjectMetadata).
PARTIAL = GroupVersionKind("meta.k8s.io", "v1", "PartialObjectMetadata")

_AS = "application/json;as="
_JSON = ";g=meta.k8s.io;v=v1,application/json"


class Retention(Struct, frozen=True, gc=False):
    """The parts of each object that the cache stores. Informers of equal retentions are shared; transforms are compared by identity.

    The steps, in this order
        ``metadata_only``: store apiVersion, kind and metadata. Only these are requested; if the server sends more, the rest is removed.
        ``fields``: store only these paths and ``IDENTITY``. If it is empty, everything is stored.
        ``managed_fields`` False: remove ``metadata.managedFields``, usually a third of an object. After an update without them the server
        still has its own (Kubernetes: server-side apply, "Clearing managedFields"), so such objects stay updatable.
        ``transform``: see ``Transform``. It gets the result of the previous steps once for each state of an object, before any index, store
        or handler. It must not change the identity (apiVersion, kind, name, namespace, uid, resourceVersion) and cannot drop an object. It
        should be idempotent, because a state that was saved and is restored after a restart is transformed again. If it raises or breaks
        these rules, the object is stored as it was before the transform; the failure is logged once per informer and counted.

    ``partial`` describes the missing parts of objects in words; it is "" if the objects are complete enough for an update.
    """

    managed_fields: bool = False
    metadata_only: bool = False
    fields: tuple[str, ...] = ()
    transform: Transform | None = None

    @property
    def partial(self) -> str:
        if self.metadata_only:
            return "its informer keeps only the metadata"
        if self.fields:
            return f"its informer keeps only {', '.join(self.fields)} (fields=[...])"
        if self.transform is not None:
            return "its informer stores the result of a transform (transform=...)"
        return ""

    @property
    def accept(self) -> str:
        """The media types to request. A server that cannot send only metadata may send whole objects."""
        return f"{_AS}PartialObjectMetadata{_JSON}" if self.metadata_only else "application/json"

    @property
    def accept_list(self) -> str:
        return f"{_AS}PartialObjectMetadataList{_JSON}" if self.metadata_only else "application/json"

    @property
    def form(self) -> str:
        """Text that is equal for equal stored forms, also across processes; functions are compared by their names."""
        name = "" if self.transform is None else f"{self.transform.__module__}.{getattr(self.transform, '__qualname__', '?')}"
        return msgspec.json.encode([self.managed_fields, self.metadata_only, list(self.fields), name]).decode()

    def check(self, paths: Iterable[str]) -> None:
        """Check that the paths of heads and indexes are stored, since they may be read again.

        Raises:
            ValueError: a path is not stored, or one of ``fields`` is malformed; the message says which and what to do instead.
        """
        stored = self._kept()
        for path in paths:
            if stored is not None and not covers(stored, path):
                way = "add it to fields=[...]" if self.fields else "use an informer of whole objects"
                raise ValueError(f'path "{path}" is not kept by this informer: {way}')

    def _kept(self) -> tuple[str, ...] | None:
        if self.fields:
            return (*IDENTITY, *self.fields)
        return ("metadata",) if self.metadata_only else None


WHOLE = Retention(managed_fields=True)
#: The default.
LEAN = Retention()


class IdentityChanged(KubeloopError):
    """A transform returned an object with another identity, or a value that is no JSON object. It is logged, not raised to callers."""


class DocumentTrimmer:
    """Applies a ``Retention`` to the objects of one kind.

    Cost
        Storing whole objects costs nothing. Removing managedFields takes about 2 us for a Pod, and saves more because less is compressed.
        ``fields`` takes about 6 us.
        ``transform`` takes 60 us or more, because it decodes and encodes the object.
    """

    def __init__(self, keep: Retention, api_version: str, kind: str) -> None:
        self.keep = keep
        self.api_version = api_version
        self.kind = kind
        #: Number of failures of the transform.
        self.failures = 0
        opening = f'{{"kind":{_text(kind)},"apiVersion":{_text(api_version)},'.encode()
        stored = keep._kept()
        self._opening = opening
        self._drops, self._transform = not keep.managed_fields, keep.transform
        self._pruning = None if stored is None else Pruning(stored, managed_fields=keep.managed_fields)
        self._excision = ManagedFieldsStripper(opening, f'{{"apiVersion":{_text(api_version)},"kind":{_text(kind)},'.encode())

    def expects(self, projected: Projected) -> bool:
        """Return whether an object of this apiVersion and kind belongs in this cache."""
        if projected.kind == self.kind and projected.api_version == self.api_version:
            return True
        return self.keep.metadata_only and projected.kind == PARTIAL.kind and projected.api_version == PARTIAL.api_version

    @property
    def transforms(self) -> bool:
        """Whether the stored document must be projected again: ``transform`` may have changed the fields of the head."""
        return self.keep.transform is not None

    def document(self, projected: Projected, document: Buffer) -> Buffer:
        """Return the document to store. It is ``document`` itself if the retention neither removes nor adds anything."""
        if self._pruning is not None:
            stored: Buffer = b"".join((self._opening, self._pruning.apply(document)[1:]))
        elif self._drops and (managed_fields := projected.metadata.managed_fields):
            stored = self._excision.apply(managed_fields, document, bool(projected.kind))
        else:
            stored = document if projected.kind else b"".join((self._opening, document[1:]))
        return stored if self._transform is None else self._transformed(self._transform, stored)

    def _transformed(self, transform: Transform, stored: Buffer) -> Buffer:
        tree: JSONObject = msgspec.json.decode(stored)
        before = _identity(tree)
        try:
            answer = transform(tree)
            changed: object = tree if answer is None else answer
            if not isinstance(changed, dict) or _identity(changed) != before:
                raise IdentityChanged("it must return the same object: apiVersion, kind, name, namespace, uid and resourceVersion as given")
            return msgspec.json.encode(changed)
        except Exception:  # noqa: BLE001 - logged
            self.failures += 1
            if self.failures == 1:
                key = "/".join(part for part in before[2:4] if part)
                _LOG.exception(
                    "transform %s failed for %s %s; such objects are stored untransformed (logged once)",
                    getattr(transform, "__qualname__", transform),
                    self.kind,
                    key,
                    extra={"key": key},
                )
            return stored


def _text(value: str) -> str:
    return msgspec.json.encode(value).decode()


def _identity(tree: JSONObject) -> tuple[str, ...]:
    metadata = tree.get("metadata")
    named = metadata if isinstance(metadata, dict) else {}
    values = (tree.get("apiVersion"), tree.get("kind"), *map(named.get, ("namespace", "name", "uid", "resourceVersion")))
    return tuple("" if value is None else str(value) for value in values)
