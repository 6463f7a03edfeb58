"""Model: the base of every typed part of an object. Snake case in Python, camel case on the wire.

A model never refuses a field that it does not know; the document that an object was read from (``Documented``) keeps it.
"""

from __future__ import annotations

import importlib
from typing import Any, ClassVar, Self, TypeAlias, TypeVar, dataclass_transform

import msgspec

IntOrString: TypeAlias = int | str
"""A number, or a string such as ``50%`` or a port's name (k8s.io/apimachinery pkg/util/intstr)."""


class _KeywordOnly(msgspec.StructMeta):
    """msgspec does not hand ``kw_only`` on to subclasses; without it a required field could not follow the base's optional ones."""

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], /, **config: Any) -> _KeywordOnly:
        config.setdefault("kw_only", True)
        return super().__new__(mcls, name, bases, namespace, **config)


@dataclass_transform(kw_only_default=True, field_specifiers=(msgspec.field,))
class Model(msgspec.Struct, metaclass=_KeywordOnly, omit_defaults=True, repr_omit_defaults=True, rename="camel", gc=False):
    """The base of nested models. Subclasses declare fields in snake case.

    Field types
        ``str``, ``bool``, ``int``, ``float`` with an empty default: missing, null and empty are one.
        ``T | None`` where Kubernetes tells missing from empty. Lists and maps are never None.
        ``bytes`` is base64 on the wire. ``datetime`` is a Time, ``MicroTime`` a MicroTime. ``Quantity`` and ``IntOrString`` as named.
        A required or by-value struct has ``msgspec.field(default_factory=...)``; a pointer is ``T | None``.

    ``__list_keys__`` says which lists are maps in disguise: wire name of the field -> wire names of the keys of its items
    (``{"containers": ("name",)}``). Changes to such a list are matched to the source document by key, wherever items move.

    Not watched by the cycle collector: what JSON can say is a tree. An object made to contain itself could not be sent, and would leak.

    Wire names that the camel rule does not give (``clusterIP``) are set with ``msgspec.field(name=...)``.
    """

    __list_keys__: ClassVar[dict[str, tuple[str, ...]]] = {}

    def to_dict(self) -> dict[str, Any]:
        """A tree with wire names (``{"nodeName": ...}``), fields at their defaults left out. The caller's own."""
        tree: dict[str, Any] = _texts().tree_of(self)
        return tree

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Self:
        """Read a tree with wire names.

        Raises:
            DecodeError: another kind, or a field of another type; names it.
        """
        made: Self = _texts().from_tree(cls, content)
        return made

    def to_yaml(self, *, managed_fields: bool = False) -> str:
        """As ``kubectl get -o yaml`` prints it; ``managed_fields`` as its ``--show-managed-fields``. Shows everything, secrets too."""
        text: str = _texts().yaml_of(self, managed_fields=managed_fields)
        return text

    @classmethod
    def from_yaml(cls, text: str | bytes) -> Self:
        """Read one YAML (or JSON) document.

        Raises:
            DecodeError: not YAML, several documents, or as ``from_dict``.
        """
        made: Self = _texts().from_yaml(cls, text)
        return made

    def __repr__(self) -> str:
        from kubeloop.meta.showing import part_of

        return part_of(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        from kubeloop.meta.showing import pretty

        pretty(self, printer, cycle)


M = TypeVar("M", bound=Model)


def replace(obj: M, /, **changes: Any) -> M:
    """A copy with other values of some fields, as ``copy.replace`` of Python 3.13; of an object that was read, nothing is lost.

    Raises:
        TypeError: it has no such field.
    """
    twin: M = obj.__replace__(**changes)
    return twin


def _texts() -> Any:
    # What reads and writes documents is a layer above, which plugs in here by name: a model alone costs nothing of it.
    return importlib.import_module("kubeloop.codec.texts")


class Documented:
    """A slot for what an object was read from. Not a field: never encoded, never compared.

    Kept outside the struct's fields so that a plain ``msgspec.json.encode(pod)`` does not send the object twice.
    """

    __slots__ = ("_source",)
    _source: Source


class Source:
    """Which class an object was read as, from which bytes, and whether they are all of it. Shared by copies; never changed.

    ``partial`` empty: the document is the whole object. Otherwise it says what is missing and why, for a person.
    """

    __slots__ = ("cls", "document", "partial")

    def __init__(self, cls: type[Model], document: bytes, partial: str = "") -> None:
        self.cls = cls
        self.document = document
        self.partial = partial
