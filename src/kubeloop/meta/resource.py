"""Resource: the base of every kind, typed or not, and what a class knows about its kind (``KindInfo``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self, TypeVar

import msgspec

from kubeloop.meta import kind_names
from kubeloop.meta.errors import UnknownKind
from kubeloop.meta.key import ObjectKey
from kubeloop.meta.kinds import GroupVersionKind, GroupVersionResource
from kubeloop.meta.model import Documented, Model, Source
from kubeloop.meta.object_meta import ObjectMeta

R = TypeVar("R", bound="Resource")


class KindInfo(msgspec.Struct, frozen=True):
    """What a class knows about its kind. ``plural`` and ``namespaced`` are None where only discovery can tell (``Unstructured``)."""

    gvk: GroupVersionKind
    plural: str | None
    namespaced: bool | None
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()

    @property
    def gvr(self) -> GroupVersionResource:
        """The resource as URLs name it.

        Raises:
            UnknownKind: the plural has to be asked from a server.
        """
        if self.plural is None:
            raise UnknownKind(f"the plural of {self.gvk} is not known here; give it, or ask a server (client.mapping)")
        return GroupVersionResource(self.gvk.group, self.gvk.version, self.plural)


class Resource(Documented, Model):
    """The base of all kinds. ``api_version`` and ``kind`` belong to the class; no instance can be of another kind.

    Guarantees
        ``copy.copy``, ``copy.deepcopy``, ``copy.replace`` and ``pickle`` carry the document that the object was read from;
        ``msgspec.structs.replace`` does too, as long as the copy keeps the original's ``metadata``.
        Equality compares fields, not documents.
        ``repr`` is one short line, without anything that is secret. ``to_yaml()`` shows all.
        ``from_dict`` and ``from_yaml`` keep what the models do not know, as reading from a server does.

    Not guaranteed
        Hashing: objects are mutable. Use ``object_key()`` or ``metadata.uid``.
    """

    __kind_info__: ClassVar[KindInfo]
    api_version: ClassVar[str] = ""
    kind: ClassVar[str] = ""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    """Wire name ``metadata``, optional; empty if absent. Name, version, labels and owners."""

    def __init_subclass__(cls, **config: Any) -> None:
        super().__init_subclass__(**config)
        info = cls.__dict__.get("__kind_info__")
        if info is not None:
            _name(cls, info)

    def object_key(self, cluster: str = "") -> ObjectKey:
        return ObjectKey(cluster, self.metadata.namespace, self.metadata.name)

    def _held_metadata(self) -> ObjectMeta:
        """The metadata as they are held: where they are a view, without bringing it up to date."""
        return self.metadata

    def __hash__(self) -> int:
        raise TypeError(f"a {type(self).__name__} can be changed, so it has no hash; use its object_key() or metadata.uid")

    def __repr__(self) -> str:
        from kubeloop.meta.repr import line_of

        return line_of(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: ARG002 - IPython's signature
        printer.text(repr(self))

    def __copy__(self) -> Self:
        twin: Self = msgspec.structs.replace(self)
        carry_source(self, twin)
        return twin

    def __replace__(self, **changes: Any) -> Self:
        twin: Self = msgspec.structs.replace(self, **changes)
        carry_source(self, twin)
        return twin

    def __reduce__(self) -> tuple[Any, ...]:
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        return _restore, (type(self), fields, source_parts(self))


def _name(cls: type[Resource], info: KindInfo) -> None:
    cls.api_version = info.gvk.api_version
    cls.kind = info.gvk.kind


def _restore(cls: type[R], fields: dict[str, Any], source: tuple[bytes, str] | None) -> R:
    obj = cls(**fields)
    if source is not None:
        set_source(obj, Source(cls, *source))
    return obj


def source_parts(obj: Resource) -> tuple[bytes, str] | None:
    """Document and what is missing of it: what a pickle carries."""
    source = source_of(obj)
    return None if source is None else (source.document, source.partial)


def set_source(obj: Resource, source: Source) -> None:
    """Remember where ``obj`` was read from, beside it and beside its metadata (which ``msgspec.structs.replace`` hands on)."""
    obj._source = source
    obj._held_metadata()._source = source


def carry_source(obj: Resource, twin: Resource) -> None:
    source = source_of(obj)
    if source is not None:
        twin._source = source


def source_of(obj: Resource) -> Source | None:
    """What ``obj`` was read from; None for an object made here.

    A copy made by ``msgspec.structs.replace`` is recognised by its metadata, which must still name the very same object and version.
    """
    own: Source | None = getattr(obj, "_source", None)
    if own is not None:
        return own
    lent: Source | None = getattr(obj.metadata, "_source", None)
    if lent is None or lent.cls is not type(obj):
        return None
    try:
        head = _HEAD.decode(lent.document).metadata
    except msgspec.MsgspecError:
        return None
    now = obj.metadata
    return lent if (head.uid, head.resource_version) == (now.uid, now.resource_version) else None


class _Identity(msgspec.Struct):
    uid: str | None = ""
    resource_version: str | None = msgspec.field(default="", name="resourceVersion")


class _Head(msgspec.Struct):
    metadata: _Identity = msgspec.field(default_factory=_Identity)


_HEAD = msgspec.json.Decoder(_Head)


def kind_info(cls: type[Resource] | Resource) -> KindInfo:
    """What a class (or an object's class) knows about its kind.

    Raises:
        UnknownKind: the class names no kind: decorate it with ``@custom_resource``.
    """
    info: KindInfo | None = getattr(cls, "__kind_info__", None)
    if info is None:
        name = cls.__name__ if isinstance(cls, type) else type(cls).__name__
        raise UnknownKind(f'{name} names no kind; decorate it with @custom_resource("GROUP/VERSION", plural="...")')
    return info


def custom_resource(
    api_version: str,
    *,
    plural: str,
    kind: str = "",
    singular: str = "",
    namespaced: bool = True,
    short_names: tuple[str, ...] = (),
    categories: tuple[str, ...] = (),
) -> Callable[[type[R]], type[R]]:
    """Declare a ``Resource`` subclass to be a custom kind.

    Args:
        api_version: Group and version, such as ``"example.com/v1"``.
        plural: The resource's name in URLs: lower case letters, digits and hyphens.
        kind: Default: the class's name.
        singular: Default: the kind in lower case.
        namespaced: False for a cluster-scoped kind.
        short_names: Names for kubectl, such as ``("ca",)``.
        categories: Groups of kinds for kubectl, such as ``("all",)``.

    Raises:
        ValueError: A name that no server would take; raised at the decorator.
        TypeError: The class is no ``Resource``, or an argument is of another type.
    """
    group_version = kind_names.group_version(api_version)
    kind_names.require_labels("plural", (plural,))
    for what, names in (("short_names", short_names), ("categories", categories)):
        kind_names.require_labels(what, names)
    if singular:
        kind_names.require_labels("singular", (singular,))

    def declare(cls: type[R]) -> type[R]:
        given: Any = cls
        if not (isinstance(given, type) and issubclass(given, Resource)):
            name = getattr(given, "__name__", given)
            raise TypeError(f"@custom_resource: {name} is no Resource; write: class {name}(Resource)")
        kind_names.require_kind_name(kind or cls.__name__)
        gvk = GroupVersionKind(group_version.group, group_version.version, kind or cls.__name__)
        info = KindInfo(gvk, plural, namespaced, singular or gvk.kind.lower(), short_names, categories)
        cls.__kind_info__ = info
        _name(cls, info)
        return cls

    return declare
