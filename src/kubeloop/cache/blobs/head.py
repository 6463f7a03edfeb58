"""Head: the decoded part of a cached object, stored with its compressed document. Immutable; shared between store and events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from itertools import starmap
from types import MappingProxyType
from typing import Any, ClassVar, cast

import msgspec
from msgspec import Struct, defstruct

from kubeloop.cache.blobs.blob_store import BlobStore
from kubeloop.cache.blobs.compression import CompressedObject
from kubeloop.cache.blobs.retention import LEAN, DocumentTrimmer, Retention
from kubeloop.codec.projection import Projected, Projection
from kubeloop.meta.time import parse_time

NO_LABELS: Mapping[str, str] = MappingProxyType({})


class Owner(Struct, frozen=True, gc=False, rename="camel"):
    """A read-only owner reference of a head. Source: k8s.io/apimachinery pkg/apis/meta/v1/types.go (OwnerReference).

    Example:
        >>> Owner(api_version="apps/v1", kind="ReplicaSet", name="web", uid="7c9e", controller=True).kind
        'ReplicaSet'
    """

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class Head(Struct, frozen=True, gc=False, eq=False):
    """Identity, labels, owners and chosen fields of one state of one object, readable without decoding the object.

    Guarantees
        It never changes; an update of the object makes a new head. Reading a field decodes nothing.
        ``labels`` is read-only, empty rather than None; equal label sets of several objects are one mapping.

    ``value`` returns the value at a path that an index or the argument ``paths`` of the informer names.
    Heads compare by identity. To compare states, compare ``uid`` and ``resource_version``.

    Example:
        >>> web = await client.create(ConfigMap(metadata=ObjectMeta(name="web", labels={"team": "shop"})))
        >>> async with InformerFactory(client) as informers:
        ...     config_maps = informers.for_kind(ConfigMap)
        ...     await config_maps.wait_synced()
        ...     head = config_maps.lister.head("web")
        ...     print(head.name, head.labels["team"], head.resource_version == web.metadata.resource_version)
        web shop True
    """

    paths: ClassVar[dict[str, str]] = {}

    namespace: str
    name: str
    uid: str
    resource_version: str
    generation: int
    labels: Mapping[str, str]
    _owners: bytes
    _deletion: str | None
    _packed: CompressedObject

    @property
    def owner_references(self) -> tuple[Owner, ...]:
        return _read_owners(self._owners) if self._owners else ()

    @property
    def controller(self) -> Owner | None:
        """The owner reference with ``controller: true``, or None."""
        return next((owner for owner in self.owner_references if owner.controller), None)

    @property
    def deletion_timestamp(self) -> datetime | None:
        return parse_time(self._deletion) if self._deletion else None

    @property
    def packed(self) -> CompressedObject:
        """The compressed document."""
        return self._packed

    def replace_packed(self, packed: CompressedObject) -> None:
        """Replace the stored form of the same document. Called by the blob store; readers see no difference."""
        msgspec.structs.force_setattr(self, "_packed", packed)

    @property
    def stored_bytes(self) -> int:
        """Size of the stored document."""
        return len(self._packed.blob)

    @property
    def raw_bytes(self) -> int:
        """Size of the decompressed document, read without decompressing it."""
        packed = self._packed
        blob = packed.blob  # read first, as in ``CompressedObject.document``: the blob may be replaced meanwhile
        return len(blob) if blob[:1] == b"{" else packed.codec.size(blob)

    @property
    def deleting(self) -> bool:
        return bool(self._deletion)

    def value(self, path: str) -> Any:
        """Return the value at ``path``: a scalar, list or map; None if the object lacks it; a tuple for a path with ``[*]``.

        Raises:
            KeyError: the informer does not read this path.
        """
        name = self.paths.get(path)
        if name is None:
            asked = ", ".join(self.paths) or "none"
            raise KeyError(f'path "{path}" is not read by this informer (read: {asked}); name it in paths=[...] or indexes={{...}}')
        return getattr(self, name)

    def document(self) -> bytes:
        """Return the whole object as JSON. Decompressing takes 13 us for a Pod."""
        return self._packed.document()


@lru_cache(maxsize=4096)
def _read_owners(raw: bytes) -> tuple[Owner, ...]:
    try:
        return tuple(msgspec.json.decode(raw, type=list[Owner]))
    except msgspec.DecodeError:
        return ()


class StringInterner:
    """Shares equal label sets, owner lists and namespaces between the heads of many objects.

    A value is looked up by the bytes that the server wrote, so that equal sets are decoded only once. When the tables have doubled, values
    that no object uses are removed, so that objects with unique labels do not make the tables grow without bound.
    """

    __slots__ = ("_labels", "_limit", "_owners", "_strings", "_tuples")

    def __init__(self) -> None:
        self._labels: dict[bytes, Mapping[str, str]] = {}
        self._owners: dict[bytes, bytes] = {}
        self._strings: dict[str, str] = {}
        self._tuples: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self._limit = 4096

    def labels(self, raw: msgspec.Raw) -> Mapping[str, str]:
        key = bytes(raw)
        found = self._labels.get(key)
        if found is None:
            found = self._labels[key] = _read_labels(key, self.string)
        return found

    def owners(self, raw: msgspec.Raw) -> bytes:
        key = bytes(raw)
        return self._owners.setdefault(key, key)

    def string(self, text: str) -> str:
        return self._strings.setdefault(text, text)

    def items(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return one shared tuple for equal tuples, such as the condition types of pods. A tuple with unhashable items is not shared."""
        try:
            return self._tuples.setdefault(values, values)
        except TypeError:  # Lists and maps have no hash.
            return values

    @property
    def full(self) -> bool:
        """Whether the tables have grown so much that ``sweep`` is due."""
        return len(self._labels) + len(self._owners) + len(self._strings) + len(self._tuples) > self._limit

    def sweep(self, heads: list[Head]) -> None:
        """Remove all values from the tables, except the label sets, owner lists and namespaces of ``heads``."""
        labels = {id(head.labels) for head in heads}
        self._labels = {raw: value for raw, value in self._labels.items() if id(value) in labels}
        self._owners = {raw: raw for raw in {head._owners for head in heads}}
        self._strings = {head.namespace: head.namespace for head in heads}
        self._tuples = {}
        self._limit = max(4096, 2 * (len(self._labels) + len(self._owners) + len(self._strings)))


def _read_labels(raw: bytes, share: Callable[[str], str]) -> Mapping[str, str]:
    if not raw or raw == b"null":
        return NO_LABELS
    try:
        tree = msgspec.json.decode(raw, type=dict[str, str | None])
    except msgspec.DecodeError:
        return NO_LABELS
    return MappingProxyType({share(name): share(value or "") for name, value in tree.items()})


class HeadReader:
    """Makes a ``Head`` of each received object: shares equal values between heads and compresses the stored part of the document.

    Args:
        api_version: ``apiVersion`` of the objects; the items of lists lack it.
        kind: ``kind`` of the objects; the items of lists lack it.
        paths: Further paths to read; each becomes an attribute of the head's class, so that it needs no container.
        archive: Compresses and stores documents.
        shared: Shares equal strings between heads.
        keep: The parts of objects to store.

    Raises
        ValueError: a path is malformed, or names a part that ``keep`` does not store. Raised by the constructor.
    """

    def __init__(
        self, api_version: str, kind: str, paths: tuple[str, ...], archive: BlobStore, shared: StringInterner, keep: Retention = LEAN
    ) -> None:
        keep.check(paths)
        self.keeper = DocumentTrimmer(keep, api_version, kind)
        self._transforms = self.keeper.transforms
        self.projection = Projection(paths)
        self.archive = archive
        self.shared = shared
        self.api_version = api_version
        self.kind = kind
        #: Path -> attribute of a head with its value. Stays valid when further paths are added.
        self.attributes = names = {path: f"value{number}_" for number, path in enumerate(self.projection.paths)}
        head_class = defstruct(
            "Head", [(name, Any) for name in names.values()], bases=(Head,), namespace={"paths": names}, frozen=True, gc=False, eq=False
        )
        self._class = head_class
        self._make = cast("Callable[..., Head]", head_class)

    def _values(self, projected: Projected) -> list[Any]:
        share, share_items = self.shared.string, self.shared.items
        return [
            share(value) if type(value) is str else share_items(value) if type(value) is tuple else value
            for value in self.projection.values(projected)
        ]

    def head(self, projected: Projected, document: memoryview, before: Head | None) -> Head:
        """Return the head of an object. ``before`` is its previous state in the store, whose strings are shared; None for a new object."""
        stored = self.keeper.document(projected, document)
        if self._transforms:
            projected = self.projection.object(stored)
        metadata = projected.metadata
        shared = self.shared
        if before is None:
            name, uid, namespace = metadata.name, metadata.uid, shared.string(metadata.namespace)
            packed = self.archive.pack(stored, namespace)
        else:
            name, namespace = before.name, before.namespace
            uid = before.uid if before.uid == metadata.uid else metadata.uid
            packed = self.archive.pack(stored, namespace, before._packed)
        return self._make(
            namespace,
            name,
            uid,
            metadata.resource_version,
            metadata.generation,
            shared.labels(metadata.labels),
            shared.owners(metadata.owner_references),
            metadata.deletion_timestamp,
            packed,
            *self._values(projected),
        )

    def made_of(self, rows: Iterable[tuple[Any, ...]]) -> list[Head]:
        """Return heads made of rows of field values: the fixed fields in their order, then the values of the paths."""
        return list(starmap(self._make, rows))

    def is_current(self, head: Head) -> bool:
        """Return whether the head was made with the present paths of this reader."""
        return type(head) is self._class

    def is_stored(self, head: Head, projected: Projected, document: memoryview | bytes) -> bool:
        """Return whether the document, as it would be stored, equals that of the head byte for byte.

        With a transform, documents of one version count as equal: a transform runs once for each state of an object.

        Args:
            head: The stored state.
            projected: The decoded metadata of the document.
            document: The whole object as JSON.
        """
        if self._transforms:
            return True
        stored = self.keeper.document(projected, document)
        return len(stored) == head.raw_bytes and stored == head.document()

    def again(self, head: Head) -> Head:
        """Return a head of the same state with the present paths of this reader."""
        projected = self.projection.object(head.document())
        return self._make(
            head.namespace,
            head.name,
            head.uid,
            head.resource_version,
            head.generation,
            head.labels,
            head._owners,
            head._deletion,
            head._packed,
            *self._values(projected),
        )
