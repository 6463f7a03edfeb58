"""The base class of every kind (``Resource``), the facts about a kind (``KindInfo``), and the map of kinds to classes (``Scheme``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Self, TypeVar

import msgspec

from kubeloop.meta.errors import UnknownKind
from kubeloop.meta.kinds import GroupVersionKind, GroupVersionResource, ObjectKey, require_group_version, require_kind_name, require_labels
from kubeloop.meta.model import Documented, DocumentSource, Model
from kubeloop.meta.object_meta import ObjectMeta

R = TypeVar("R", bound="Resource")


class KindInfo(msgspec.Struct, frozen=True):
    """The facts about a kind. ``plural`` and ``namespaced`` are None if only discovery knows them (``Unstructured``).

    >>> kind_info(Pod).plural, kind_info(Pod).namespaced
    ('pods', True)
    """

    gvk: GroupVersionKind
    plural: str | None
    namespaced: bool | None
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()

    @property
    def gvr(self) -> GroupVersionResource:
        """The resource of the kind, as URLs name it.

        Raises:
            UnknownKind: Only a server knows the plural.
        """
        if self.plural is None:
            raise UnknownKind(f"the plural of {self.gvk} is not known here; give it, or ask a server (client.mapping)")
        return GroupVersionResource(self.gvk.group, self.gvk.version, self.plural)


class Resource(Documented, Model):
    """The base class of all kinds. ``api_version`` and ``kind`` belong to the class; no instance can have another kind.

    >>> @custom_resource("example.com/v1", plural="databases")
    ... class Database(Resource):
    ...     pass
    >>> Database(metadata=ObjectMeta(name="orders")).to_dict()["kind"]
    'Database'

    Guarantees
        ``copy.copy``, ``copy.deepcopy``, ``copy.replace`` and ``pickle`` preserve the document that the object was read from;
        ``msgspec.structs.replace`` does too, as long as the copy has the original's ``metadata``.
        Equality compares fields, not documents.
        ``repr`` is one short line without secrets. ``to_yaml()`` shows everything.
        ``from_dict`` and ``from_yaml`` preserve unknown fields, as decoding from a server does.

    Not guaranteed
        Objects cannot be hashed, because they are mutable. Use ``object_key()`` or ``metadata.uid``.
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
        """Return the stored metadata. The typed view of an ``Unstructured`` is not synchronised with its tree first."""
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
        set_source(obj, DocumentSource(cls, *source))
    return obj


def source_parts(obj: Resource) -> tuple[bytes, str] | None:
    """Return the document that ``obj`` was read from and the text about its missing parts, for pickling; None without a document."""
    source = source_of(obj)
    return None if source is None else (source.document, source.partial)


def set_source(obj: Resource, source: DocumentSource) -> None:
    """Store the source of ``obj`` on it and on its metadata (which ``msgspec.structs.replace`` passes on)."""
    obj._source = source
    obj._held_metadata()._source = source


def carry_source(obj: Resource, twin: Resource) -> None:
    source = source_of(obj)
    if source is not None:
        twin._source = source


def source_of(obj: Resource) -> DocumentSource | None:
    """Return the source that ``obj`` was read from, or None for an object that was constructed in this program.

    A copy made by ``msgspec.structs.replace`` is recognised by its metadata, which must still have the same name and version.
    """
    own: DocumentSource | None = getattr(obj, "_source", None)
    if own is not None:
        return own
    lent: DocumentSource | None = getattr(obj.metadata, "_source", None)
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
    """Return the facts about the kind of a class or of an object's class.

    Raises:
        UnknownKind: The class has no kind: decorate it with ``@custom_resource``.
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
    """Declare a ``Resource`` subclass as a custom kind.

    Args:
        api_version: Group and version, such as ``"example.com/v1"``.
        plural: The resource's name in URLs: lower case letters, digits and hyphens.
        kind: Default: the class's name.
        singular: Default: the kind in lower case.
        namespaced: False for a cluster-scoped kind.
        short_names: Names for kubectl, such as ``("ca",)``.
        categories: Groups of kinds for kubectl, such as ``("all",)``.

    Returns:
        A class decorator.

    Raises:
        ValueError: No server would accept a name; raised at the decorator.
        TypeError: The class is not a ``Resource``, or an argument has another type.
    """
    group_version = require_group_version(api_version)
    require_labels("plural", (plural,))
    for what, names in (("short_names", short_names), ("categories", categories)):
        require_labels(what, names)
    if singular:
        require_labels("singular", (singular,))

    def declare(cls: type[R]) -> type[R]:
        given: Any = cls
        if not (isinstance(given, type) and issubclass(given, Resource)):
            name = getattr(given, "__name__", given)
            raise TypeError(f"@custom_resource: {name} is not a Resource; write: class {name}(Resource)")
        require_kind_name(kind or cls.__name__)
        gvk = GroupVersionKind(group_version.group, group_version.version, kind or cls.__name__)
        info = KindInfo(gvk, plural, namespaced, singular or gvk.kind.lower(), short_names, categories)
        cls.__kind_info__ = info
        _name(cls, info)
        return cls

    return declare


Finder = Callable[[GroupVersionKind], type[Resource] | None]


class Scheme:
    """Maps kinds to classes. Added classes take precedence; then the finders are called in order, for instance to load generated classes.

    >>> scheme = Scheme()
    >>> scheme.add(Pod)
    >>> scheme.class_of(GroupVersionKind("", "v1", "Pod")).__name__
    'Pod'

    Not global: two schemes in one process may differ. Not thread-safe while classes are added.
    """

    def __init__(self, classes: Iterable[type[Resource]] = (), finders: Iterable[Finder] = ()) -> None:
        self._classes: dict[GroupVersionKind, type[Resource]] = {}
        self._finders = tuple(finders)
        for cls in classes:
            self.add(cls)

    def add(self, cls: type[Resource]) -> None:
        """Register ``cls`` in place of any class of the same kind.

        Raises:
            UnknownKind: The class has no kind.
        """
        self._classes[kind_info(cls).gvk] = cls

    def find(self, gvk: GroupVersionKind) -> type[Resource] | None:
        """Return the class of a kind, or None if the kind is unknown."""
        found = self._classes.get(gvk)
        if found is None:
            found = next((cls for finder in self._finders if (cls := finder(gvk)) is not None), None)
            if found is not None:
                self._classes[gvk] = found
        return found

    def class_of(self, gvk: GroupVersionKind) -> type[Resource]:
        """Return the class of a kind.

        Raises:
            UnknownKind: The kind is unknown.
        """
        found = self.find(gvk)
        if found is None:
            raise UnknownKind(f"no class is known for {gvk}; declare one with @custom_resource, or use Unstructured.for_kind(...)")
        return found

    def __contains__(self, gvk: GroupVersionKind) -> bool:
        return self.find(gvk) is not None
