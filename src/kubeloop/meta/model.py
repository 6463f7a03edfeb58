"""Model: the base of every typed part of an object. Snake case in Python, camel case on the wire.

A model never refuses an unknown field; the document that an object was read from (``Documented``) preserves it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias, TypeVar, dataclass_transform
from weakref import WeakKeyDictionary

import msgspec

IntOrString: TypeAlias = int | str
"""A number, or a string such as ``50%`` or a port's name (k8s.io/apimachinery pkg/util/intstr)."""


_own_doc = type.__dict__["__doc__"]


def _doc_of(cls: type[msgspec.Struct]) -> str:
    own: str | None = _own_doc.__get__(cls)
    from kubeloop.meta.repr import doc_of

    return doc_of(cls, own)


#: ``__doc__`` of models: the class's own docstring, or a line with its name, and the documentation of its fields. Each metaclass defines
#: it, because a class statement gives each class a ``__doc__`` that hides its base's; so the metaclasses have comments instead.
_DOC: Any = property(_doc_of, lambda cls, text: _own_doc.__set__(cls, text))


class _KeywordOnly(msgspec.StructMeta):
    # Subclasses do not inherit msgspec's ``kw_only``; without it a required field could not follow the base's optional ones.
    if not TYPE_CHECKING:
        __doc__ = _DOC

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], /, **config: Any) -> _KeywordOnly:
        config.setdefault("kw_only", True)
        # Not mcls: a new subclass of a frequently called class has not been called yet, so its errors are explained.
        return super().__new__(ModelMeta, name, bases, namespace, **config)


_construct = msgspec.StructMeta.__call__
#: Number of calls per class whose errors are explained. Explaining doubles the cost of a call (0.3 us), which is little for so few calls.
_EXPLAINED = 10_000
_calls: WeakKeyDictionary[type, int] = WeakKeyDictionary()


class ModelMeta(_KeywordOnly):
    # The metaclass of a model up to its 10,000th call: a wrong argument raises an error that names class and field.
    # Then the class becomes a plain ``_KeywordOnly``, whose instances msgspec constructs without any Python code in between.
    # A wrong call usually fails when it runs first, which is early in the life of a program.

    if not TYPE_CHECKING:  # type checkers know the fields, and check calls by them
        __doc__ = _DOC

        def __call__(cls, /, *arguments: Any, **fields: Any) -> Any:  # noqa: N805 - of a metaclass
            _calls[cls] = count = _calls.get(cls, 0) + 1
            if count >= _EXPLAINED:
                cls.__class__ = _KeywordOnly
            try:
                return _construct(cls, *arguments, **fields)
            except TypeError as error:
                from kubeloop.meta.construction import construction_error

                explained = construction_error(cls, fields, error)
                if explained is error:
                    raise
            raise explained


@dataclass_transform(kw_only_default=True, field_specifiers=(msgspec.field,))
class Model(msgspec.Struct, metaclass=ModelMeta, omit_defaults=True, repr_omit_defaults=True, rename="camel", gc=False):
    """The base of nested models. Subclasses declare fields in snake case.

    >>> class DatabaseSpec(Model):
    ...     storage_size: int = 1
    >>> DatabaseSpec.from_dict({"storageSize": 3})
    DatabaseSpec(storage_size=3)

    Field types
        ``str``, ``bool``, ``int``, ``float`` with an empty default: missing, null and empty are the same.
        ``T | None`` where Kubernetes distinguishes missing from empty. Lists and maps are never None.
        ``bytes`` is base64 on the wire. ``datetime`` is a Time, ``MicroTime`` a MicroTime. ``Quantity`` and ``IntOrString`` as named.
        A required or by-value struct has ``msgspec.field(default_factory=...)``; a pointer is ``T | None``.

    ``__list_keys__`` names the lists whose items have keys: wire name of the field -> wire names of the keys of its items
    (``{"containers": ("name",)}``). Changes to such a list are matched to the source document by key, wherever items move.

    The cycle collector does not track models: JSON values are trees. A cyclic object could not be sent, and would leak.

    Wire names that the camel rule does not give (``clusterIP``) are set with ``msgspec.field(name=...)``.
    """

    __list_keys__: ClassVar[dict[str, tuple[str, ...]]] = {}

    # The next four methods import ``kubeloop.codec``, the layer above, when they are called: models alone do not load it.
    # It is the one import upwards, named in the contract of the layers (pyproject.toml).

    def to_dict(self) -> dict[str, Any]:
        """Return a new tree with wire names (``{"nodeName": ...}``), without fields at their defaults."""
        from kubeloop.codec.conversion import tree_of

        return tree_of(self)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Self:
        """Build an instance from a tree with wire names.

        Raises:
            DecodeError: The tree has another kind, or a field of another type; the message names the kind or the field.
        """
        from kubeloop.codec.conversion import from_tree

        return from_tree(cls, content)

    def to_yaml(self, *, managed_fields: bool = False) -> str:
        """Return the object as ``kubectl get -o yaml`` prints it, with all values of Secrets.

        ``managed_fields`` includes ``metadata.managedFields``, as kubectl's ``--show-managed-fields`` does.
        """
        from kubeloop.codec.conversion import yaml_of

        return yaml_of(self, managed_fields=managed_fields)

    @classmethod
    def from_yaml(cls, text: str | bytes) -> Self:
        """Build an instance from one YAML (or JSON) document.

        Raises:
            DecodeError: The text is not YAML, has several documents, or does not fit the class (see ``from_dict``).
        """
        from kubeloop.codec.conversion import from_yaml

        return from_yaml(cls, text)

    def __repr__(self) -> str:
        from kubeloop.meta.repr import part_of

        return part_of(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        from kubeloop.meta.repr import pretty

        pretty(self, printer, cycle)


M = TypeVar("M", bound=Model)


def replace(obj: M, /, **changes: Any) -> M:
    """Return a copy with other values of some fields, as ``copy.replace`` of Python 3.13; unknown fields of a read object are preserved.

    Raises:
        TypeError: The model has no such field.
    """
    twin: M = obj.__replace__(**changes)
    return twin


class Documented:
    """A slot for the document that an object was read from. Not a field: never encoded, never compared.

    It is outside the struct's fields so that a plain ``msgspec.json.encode(pod)`` does not send the object twice.
    """

    __slots__ = ("_source",)
    _source: DocumentSource


class DocumentSource:
    """The class and the bytes that an object was read from. Shared by copies; never changed.

    >>> settings = await client.create(ConfigMap(metadata=ObjectMeta(name="settings")))
    >>> from kubeloop.meta import source_of
    >>> source_of(settings).cls.__name__
    'ConfigMap'

    ``partial`` empty: the document is the whole object. Otherwise it says for people which part is missing and why.
    """

    __slots__ = ("cls", "document", "partial")

    def __init__(self, cls: type[Model], document: bytes, partial: str = "") -> None:
        self.cls = cls
        self.document = document
        self.partial = partial
