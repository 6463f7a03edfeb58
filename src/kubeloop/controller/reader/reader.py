"""CacheReader: reads from the informers of one controller, and refuses what they do not hold, instead of answering that it is not there."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from kubeloop.cache import Head, Informer, Lister, OutsideScope
from kubeloop.cache.lister.query import selector_of
from kubeloop.client.selector_text import Labels
from kubeloop.controller.builder.declaration import DeclarationError
from kubeloop.meta import ObjectKey, PartialObject, Resource, Selector, parse_field_selector, parse_label_selector
from kubeloop.meta.label_requirement import Operator, Requirement

_ONE_OF = (Operator.EQUALS, Operator.DOUBLE_EQUALS, Operator.IN)
_NONE_OF = (Operator.NOT_EQUALS, Operator.NOT_IN)


def implies(asked: Selector, kept: Selector) -> bool:
    """Whether all that ``asked`` selects is selected by ``kept``, as far as one requirement tells another. False where nobody can tell."""
    return all(any(_implies(one, wanted) for one in asked.requirements) for wanted in kept.requirements)


def _implies(one: Requirement, wanted: Requirement) -> bool:
    if one.key != wanted.key:
        return False
    if wanted.operator is Operator.EXISTS:
        return one.operator not in (*_NONE_OF, Operator.DOES_NOT_EXIST)
    if one.operator in _ONE_OF:
        return all(_accepts(wanted, value) for value in one.values)
    if wanted.operator in _NONE_OF:
        return one.operator is Operator.DOES_NOT_EXIST or (one.operator in _NONE_OF and set(wanted.values) <= set(one.values))
    return (one.operator, one.values) == (wanted.operator, wanted.values)


def _accepts(wanted: Requirement, value: str) -> bool:
    return Selector((wanted,)).matches({wanted.key: value})


R = TypeVar("R", bound=Resource)
Where = Mapping[str, str | int | bool | None]


class CacheReader:
    """Fresh objects, the caller's own, from memory; own writes are seen at once.

    Guarantees (behaviours S223-S226)
        What the cache does not hold is an error that says how to have it held: a kind that was not declared, the whole of a kind of which
        only metadata is kept, a namespace or a selection outside of that which the manager's ``scope`` has the informer keep.
        Several fields are ANDed, for cluster-scoped kinds too.

    Not guaranteed
        That ``list`` without a selector gives all that the cluster has: it gives all that is kept. For the newest state ask ``client``.
    """

    __slots__ = ("_informers", "_owner")

    def __init__(self, owner: str, informers: Mapping[type[Resource], Informer[Any]]) -> None:
        """``owner``: the controller's class, for messages."""
        self._owner = owner
        self._informers = dict(informers)

    @property
    def kinds(self) -> builtins.list[type[Resource]]:
        """What can be read, in full or its metadata."""
        return builtins.list(self._informers)

    def get(self, kind: type[R], name: str, namespace: str | None = None) -> R | None:
        """One object; None if it is not in the cache, and so, as far as is known, not in the cluster.

        Raises:
            DeclarationError, OutsideScope: the cache does not hold such objects. DecodeError: it does not fit its type.
        """
        return self.lister(kind).get(name, namespace)

    def by_key(self, kind: type[R], key: ObjectKey) -> R | None:
        """As ``get``."""
        return self.lister(kind).by_key(key)

    def list(
        self, kind: type[R], namespace: str | None = None, *, label_selector: Labels | None = None, where: Where | None = None
    ) -> builtins.list[R]:
        """All objects of the cache that match. ``fields``: values by path; the paths must be indexed or read (``indexes=``, ``paths=``).

        Raises:
            DeclarationError: the kind is not held, or only its metadata. UnreadPath: a path is not read.
            OutsideScope: a namespace that is not held, or a selection that is more than what the cache selects.
        """
        self._check(kind, label_selector, where)
        return self.lister(kind).list(namespace, label_selector, where)

    def heads(
        self, kind: type[Resource], namespace: str | None = None, *, label_selector: Labels | None = None, where: Where | None = None
    ) -> builtins.list[Head]:
        """As ``list``, decoding nothing; also of kinds of which only metadata is kept."""
        self._check(kind, label_selector, where)
        return self._held(kind).lister.heads(namespace, label_selector, where)

    def lister(self, kind: type[R]) -> Lister[R]:
        """All that the informer of a kind can answer, as it is: its selection is not looked at.

        Raises:
            DeclarationError: the kind is not held, or only its metadata.
        """
        return self.informer(kind).lister

    def metadata_lister(self, kind: type[Resource]) -> Lister[PartialObject]:
        """The lister of a kind of which only metadata is kept.

        Raises:
            DeclarationError: it is not held, or in full.
        """
        informer = self._held(kind)
        if not informer.scope.keep.metadata_only:
            name = kind.__name__
            raise DeclarationError(f"{self._owner} keeps {name} objects in full; read them with lister({name})")
        return cast("Lister[PartialObject]", informer.lister)

    def informer(self, kind: type[R]) -> Informer[R]:
        """The informer of a kind that is kept in full.

        Raises:
            DeclarationError: as ``lister``.
        """
        informer: Informer[R] = self._held(kind)
        if informer.scope.keep.metadata_only:
            name = kind.__name__
            raise DeclarationError(
                f"{self._owner} keeps only the metadata of {name} objects; read it with metadata_lister({name}), or take metadata_only away"
            )
        return informer

    def _held(self, kind: type[Resource]) -> Informer[Any]:
        informer = self._informers.get(kind)
        if informer is None:
            name = kind.__name__
            raise DeclarationError(f"{self._owner} has no informer for {name}; name it in owns=[...], watches=[...] or reads=[{name}]")
        return informer

    def _check(self, kind: type[Resource], label_selector: Labels | None, where: Where | None) -> None:
        """That a selection asks for no more than what is kept."""
        scope = self._held(kind).scope
        if label_selector is not None and scope.label_selector:
            kept, asked = parse_label_selector(scope.label_selector), selector_of(label_selector)
            if not implies(asked, kept):
                self._refuse(kind, f'labels "{kept}"', f'labels "{asked}"')
        if where is not None and scope.field_selector:
            selected = parse_field_selector(scope.field_selector)
            asked_of = {path: "" if value is None else str(value) for path, value in where.items()}
            if any(term.field in asked_of and not term.matches(asked_of) for term in selected.terms):
                self._refuse(kind, f'fields "{selected}"', f"fields {dict(where)}")

    def _refuse(self, kind: type[Resource], kept: str, asked: str) -> None:
        name = kind.__name__
        raise OutsideScope(
            f"{self._owner}: the cache holds {name} objects with {kept} only, and {asked} may select others; ask for less, "
            f"widen the manager's scope (CacheScope(kinds={{{name}: KindScope(...)}})), or ask the server: client.list({name}, ...)"
        )
