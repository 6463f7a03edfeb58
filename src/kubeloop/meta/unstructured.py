"""Objects without a model: ``Unstructured`` for any kind, ``PartialObject`` for the metadata of any kind."""

from __future__ import annotations

import types
from typing import Any, ClassVar, Self, cast

import msgspec

from kubeloop.meta.errors import DecodeError
from kubeloop.meta.kinds import GroupVersion, GroupVersionKind
from kubeloop.meta.model import DocumentSource, Model
from kubeloop.meta.object_meta import ObjectMeta
from kubeloop.meta.resource import KindInfo, Resource, set_source, source_parts

_CLASSES: dict[tuple[str, str, str | None, bool | None], type[Unstructured]] = {}


class Unstructured(Resource):
    """An object of a kind without a generated class: ``Deployment = Unstructured.for_kind("apps/v1", "Deployment")``.

    >>> Settings = Unstructured.for_kind("v1", "ConfigMap")
    >>> settings = await client.create(Settings.from_dict({"metadata": {"name": "settings"}, "data": {"color": "blue"}}))
    >>> settings["data"]["color"], settings.metadata.name
    ('blue', 'settings')

    Guarantees
        ``obj["spec"]["replicas"]`` reads and writes the tree; ``obj.metadata`` is a typed view of ``obj["metadata"]`` that reads and
        writes through, both ways. Where both were changed, the typed change wins.
        The same arguments give the same class, so that informers and mappings are shared.

    Not guaranteed
        After a change through one view, references to ``obj["metadata"]`` or to lists inside ``obj.metadata`` are outdated: read them
        again.
    """

    content: dict[str, Any] = msgspec.field(default_factory=dict)
    _seen_typed: bytes = b"{}"
    _seen_tree: bytes = b""
    #: The typed view, before the first use: it does not exist yet, so the tree alone counts. Most trees are read without it.
    _unread: ObjectMeta | None = None
    #: The object's text, before the first access: a tree takes several times its memory, and many listed objects are never read.
    _text: bytes = b""

    __plain__: ClassVar[tuple[str, str, str | None, bool | None]]

    @staticmethod
    def for_kind(api_version: str, kind: str, *, plural: str | None = None, namespaced: bool | None = None) -> type[Unstructured]:
        """Return the class of a kind.

        Args:
            api_version: Group and version, such as ``apps/v1``.
            kind: The kind, such as ``Deployment``.
            plural: The resource's name in URLs. None: a client asks the server's discovery.
            namespaced: Whether objects have a namespace. None: a client asks the server's discovery.

        Raises:
            ValueError: ``api_version`` is malformed.
        """
        key = (api_version, kind, plural, namespaced)
        found = _CLASSES.get(key)
        if found is None:
            info = KindInfo(GroupVersionKind(*GroupVersion.parse(api_version), kind), plural, namespaced, kind.lower())
            namespace = {"__kind_info__": info, "__plain__": key, "__module__": __name__, "__qualname__": f"Unstructured[{kind}]"}
            made = types.new_class(kind, (Unstructured,), {}, lambda body: body.update(namespace))
            found = _CLASSES[key] = cast("type[Unstructured]", made)
        return found

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Self:
        """Wrap a tree (not copied). On ``Unstructured`` itself the tree's ``apiVersion`` and ``kind`` choose the class.

        Raises:
            DecodeError: The tree has no kind, or another kind than this class, or metadata that is not an object.
        """
        api_version, kind = content.get("apiVersion"), content.get("kind")
        target: type[Any] = cls
        if not cls.kind:
            if not isinstance(api_version, str) or not isinstance(kind, str) or not api_version or not kind:
                raise DecodeError('the object names no kind: it needs "apiVersion" and "kind"')
            try:
                target = Unstructured.for_kind(api_version, kind)
            except ValueError as error:
                raise DecodeError(str(error)) from None
        elif (api_version or cls.api_version, kind or cls.kind) != (cls.api_version, cls.kind):
            raise DecodeError(f"the object is {api_version}, Kind={kind}, not {cls.api_version}, Kind={cls.kind}")
        if not isinstance(content.get("metadata") or {}, dict):
            raise DecodeError(f"{target.kind}: metadata is not an object")
        obj: Self = target(content=content)
        obj._unread = obj._typed
        return obj

    @classmethod
    def from_text(cls, text: bytes) -> Self:
        """Build an object of a known kind from JSON; the tree is made at the first access to the object.

        Raises:
            DecodeError: The text is not an object, its metadata is not an object, or it has another kind. The first access raises errors
                that only a full decode finds (text that is not UTF-8).
        """
        try:
            head = _HEAD.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return cls.from_dict(_read_tree(text, cls.kind))  # raises the error
        if (head.api_version or cls.api_version, head.kind or cls.kind) != (cls.api_version, cls.kind):
            return cls.from_dict(_read_tree(text, cls.kind))
        obj = cls()
        obj._unread = obj._typed
        obj._text = text
        return obj

    def _get_content(self) -> dict[str, Any]:
        if self._text:
            _CONTENT.__set__(self, _read_tree(self._text, self.kind))
            self._text = b""
        content: dict[str, Any] = _CONTENT.__get__(self)
        return content

    def _set_content(self, value: dict[str, Any]) -> None:
        _CONTENT.__set__(self, value)
        self._text = b""

    @property
    def _typed(self) -> ObjectMeta:
        typed: ObjectMeta = _METADATA.__get__(self)
        return typed

    def _held_metadata(self) -> ObjectMeta:
        return self._typed

    def _get_metadata(self) -> ObjectMeta:
        self._read()
        self.synchronize()
        return self._typed

    def _set_metadata(self, value: ObjectMeta) -> None:
        self._read()
        _METADATA.__set__(self, value)

    def _read(self) -> None:
        """Create the typed view of the metadata, unless it exists."""
        if self._unread is None:
            return
        if self._unread is self._typed:
            self._pull()
        else:  # a copy with other metadata: they replace the tree's
            self._seen_typed = msgspec.json.encode(_read_metadata(self.content.get("metadata"), self.kind))
        self._unread = None

    def synchronize(self) -> None:
        """Synchronise typed metadata and tree (every access does it; call it before reading ``content`` directly)."""
        if self._unread is not None:
            if self._unread is self._typed:
                return
            self._read()
        typed = msgspec.json.encode(self._typed)
        if typed != self._seen_typed:
            self._push(typed)
            self._pull()
        elif msgspec.json.encode(self.content.get("metadata")) != self._seen_tree:
            self._pull()

    def _push(self, typed: bytes) -> None:
        before: dict[str, Any] = msgspec.json.decode(self._seen_typed)
        after: dict[str, Any] = msgspec.json.decode(typed)
        tree = self.content.get("metadata")
        if not isinstance(tree, dict):
            tree = self.content["metadata"] = {}
        for name in before.keys() | after.keys():
            old, new = before.get(name), after.get(name)
            if old == new:
                continue
            mine = tree.get(name)
            if new is None:
                tree.pop(name, None)
            elif isinstance(mine, dict) and isinstance(new, dict):
                for key in (old or {}).keys() - new.keys():
                    mine.pop(key, None)
                mine.update({key: value for key, value in new.items() if (old or {}).get(key) != value})
            else:
                tree[name] = new

    def _pull(self) -> None:
        tree = self.content.get("metadata")
        self._seen_tree = msgspec.json.encode(tree)
        fresh = _read_metadata(tree, self.kind)
        live = self._typed
        for name in live.__struct_fields__:
            new, old = getattr(fresh, name), getattr(live, name)
            if isinstance(old, dict) and isinstance(new, dict):
                if old != new:
                    old.clear()
                    old.update(new)
            elif old != new:
                setattr(live, name, new)
        self._seen_typed = msgspec.json.encode(live)

    def to_dict(self) -> dict[str, Any]:
        """Return the tree itself (not a copy), with ``apiVersion`` and ``kind``."""
        self.synchronize()
        if self.content.get("apiVersion") != self.api_version or self.content.get("kind") != self.kind:
            rest = {key: value for key, value in self.content.items() if key not in {"apiVersion", "kind"}}
            self.content.clear()
            self.content.update({"apiVersion": self.api_version, "kind": self.kind} | rest)
        return self.content

    def __getitem__(self, key: str) -> Any:
        self.synchronize()
        return self.content[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.synchronize()
        self.content[key] = value

    def __delitem__(self, key: str) -> None:
        self.synchronize()
        del self.content[key]

    def __contains__(self, key: str) -> bool:
        self.synchronize()
        return key in self.content

    def get(self, *path: str, default: Any = None) -> Any:
        """Return the value at ``path`` (``obj.get("spec", "replicas")``); ``default`` where any part is missing or null."""
        self.synchronize()
        at: Any = self.content
        for key in path:
            at = at.get(key) if isinstance(at, dict) else None
            if at is None:
                return default
        return at

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Unstructured):
            return NotImplemented
        return type(self) is type(other) and self.to_dict() == other.to_dict()

    __hash__ = Resource.__hash__

    def _ipython_key_completions_(self) -> list[str]:
        return list(self.content)

    def __copy__(self) -> Self:
        self._read()  # both copies share the view
        return super().__copy__()

    def __replace__(self, **changes: Any) -> Self:
        self._read()
        return super().__replace__(**changes)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.__plain__, self.to_dict(), source_parts(self))


_METADATA: Any = Resource.__dict__["metadata"]
_CONTENT: Any = Unstructured.__dict__["content"]
Unstructured.metadata = property(Unstructured._get_metadata, Unstructured._set_metadata)  # type: ignore[assignment]  # mypy sees the field
Unstructured.content = property(Unstructured._get_content, Unstructured._set_content)  # type: ignore[assignment]  # as above


def _restore(plain: tuple[str, str, str | None, bool | None], content: dict[str, Any], source: tuple[bytes, str] | None) -> Unstructured:
    api_version, kind, plural, namespaced = plain
    obj = Unstructured.for_kind(api_version, kind, plural=plural, namespaced=namespaced).from_dict(content)
    if source is not None:
        set_source(obj, DocumentSource(type(obj), *source))
    return obj


class _AnyObject(msgspec.Struct):
    """A JSON object with any content; checks only that a value is an object."""


class _Head(msgspec.Struct):
    api_version: str | None = msgspec.field(default=None, name="apiVersion")
    kind: str | None = None
    metadata: _AnyObject | None = None


_HEAD = msgspec.json.Decoder(_Head)
_TREE = msgspec.json.Decoder(dict[str, Any])


def _read_tree(text: bytes, kind: str) -> dict[str, Any]:
    try:
        return _TREE.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"{kind}: the body is not a JSON object: {error}") from None


_METADATA_READER = msgspec.json.Decoder(ObjectMeta)


def _read_metadata(tree: Any, kind: str) -> ObjectMeta:
    """Decode the metadata of a tree; nulls count as missing.

    Raises:
        DecodeError: The metadata is not an object, or a field has another type.
    """
    if tree is None:
        return ObjectMeta()
    if not isinstance(tree, dict):
        raise DecodeError(f"{kind}: metadata is not an object")
    try:
        return _METADATA_READER.decode(msgspec.json.encode(tree))  # through bytes: managed fields stay bytes
    except msgspec.ValidationError:
        pass
    kept = ObjectMeta()
    for name, wire in zip(kept.__struct_fields__, kept.__struct_encode_fields__, strict=True):
        value = tree.get(wire)
        if value is None:
            continue
        try:
            setattr(kept, name, getattr(_METADATA_READER.decode(msgspec.json.encode({wire: value})), name))
        except msgspec.ValidationError as error:
            raise DecodeError(f"{kind}: metadata.{wire}: {error}") from None
    return kept


class PartialObject(Resource):
    """An object's metadata, as a server sends it for ``PartialObjectMetadata``. It is never enough for an update.

    >>> settings = await client.create(ConfigMap(metadata=ObjectMeta(name="settings", labels={"app": "web"})))
    >>> (await client.get_metadata(ConfigMap, "settings")).metadata.labels
    {'app': 'web'}
    """


class BookmarkObject(Model):
    """The content of a bookmark event: a resourceVersion to resume from, and whether the initial events have ended.

    >>> BookmarkObject(metadata=ObjectMeta(resource_version="1700")).metadata.resource_version
    '1700'

    Real servers fill required fields of the object with nulls; therefore a bookmark is never decoded as its kind.
    Source: Kubernetes API concepts, "Watch bookmarks"; KEP-3157.
    """

    INITIAL_EVENTS_END: ClassVar[str] = "k8s.io/initial-events-end"

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)

    @property
    def ends_initial_events(self) -> bool:
        return self.metadata.annotations.get(self.INITIAL_EVENTS_END) == "true"
