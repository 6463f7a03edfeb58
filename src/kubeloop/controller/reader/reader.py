"""CacheReader: reads from the informers of one controller, and rejects reads outside the manager's ``CacheScope``."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict, TypeVar, cast

from kubeloop.cache import Head, Informer, Lister, OutsideScope
from kubeloop.cache.lister.query import selector_of
from kubeloop.client.mapper import ALL_NAMESPACES
from kubeloop.client.selector_text import Fields, Labels, field_text, label_text
from kubeloop.controller.errors import DeclarationError
from kubeloop.meta import ObjectKey, PartialObject, Resource, Selector, names, parse_field_selector, parse_label_selector
from kubeloop.meta.label_requirement import Operator, Requirement

# Scope of a manager: the namespaces and objects of each kind that its informers cache, with defaults for all kinds.
#
# The scope of a kind overrides the scope of all kinds (controller-runtime pkg/cache; behaviour S225).


class InformerSelection(TypedDict):
    """Arguments of ``InformerFactory.for_kind`` that select the objects to cache."""

    namespace: str | tuple[str, ...]
    label_selector: str | None
    field_selector: str | None


@dataclass(frozen=True, slots=True)
class KindCacheScope:
    """The objects of one kind that a manager caches.

    None stands for the setting of the ``CacheScope``. ``ALL_NAMESPACES`` and the selector ``""`` override that setting with "all".

    Raises:
        ValueError: see ``CacheScope``.

    Example:
        >>> KindCacheScope(namespaces="kube-system", label_selector="").namespaces
        'kube-system'
    """

    namespaces: str | Sequence[str] | None = None
    label_selector: Labels | None = None
    field_selector: Fields | None = None

    def __post_init__(self) -> None:
        _check("KindCacheScope", self.namespaces, self.label_selector, self.field_selector)


@dataclass(frozen=True, slots=True)
class CacheScope:
    """The objects that the informers of a manager cache. Namespaces apply to namespaced kinds, selectors to all kinds.

    Args:
        namespaces: One namespace, several, or ``ALL_NAMESPACES``.
        label_selector: Cache only matching objects. None: all.
        field_selector: Cache only matching objects. None: all.
        kinds: Kind -> its own scope, which overrides the other arguments.

    Raises:
        ValueError: an invalid name of a namespace, or a selector that cannot be read; the message names it.

    Example:
        >>> nodes = KindCacheScope(label_selector="pool=gpu")
        >>> scope = CacheScope(namespaces=["shop", "bank"], kinds={Node: nodes})
        >>> manager = Manager(client, scope=scope)
    """

    namespaces: str | Sequence[str] = ALL_NAMESPACES
    label_selector: Labels | None = None
    field_selector: Fields | None = None
    kinds: Mapping[type[Resource], KindCacheScope] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check("CacheScope", self.namespaces, self.label_selector, self.field_selector)

    def select(self, kind: type[Resource], *, namespaced: bool) -> InformerSelection:
        """Return the arguments of an informer of ``kind``: ``informers.for_kind(kind, **scope.select(kind, namespaced=True))``."""
        own = self.kinds.get(kind, KindCacheScope())
        namespaces = _names(self.namespaces if own.namespaces is None else own.namespaces) if namespaced else ()
        return InformerSelection(
            namespace=namespaces[0] if len(namespaces) == 1 else namespaces or ALL_NAMESPACES,
            label_selector=label_text(self.label_selector if own.label_selector is None else own.label_selector) or None,
            field_selector=field_text(self.field_selector if own.field_selector is None else own.field_selector) or None,
        )

    def covers(self, kind: type[Resource], namespace: str) -> bool:
        """Return whether objects of a namespaced kind in this namespace can be cached; ``ALL_NAMESPACES`` means all of them."""
        own = self.kinds.get(kind, KindCacheScope())
        namespaces = _names(self.namespaces if own.namespaces is None else own.namespaces)
        return not namespaces or namespace in namespaces


def _names(namespaces: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the namespaces sorted and unique; an empty tuple stands for all."""
    selected = (namespaces,) if isinstance(namespaces, str) else tuple(namespaces or ())
    return () if ALL_NAMESPACES in selected else tuple(sorted(set(selected)))


def _check(owner: str, namespaces: str | Sequence[str] | None, label_selector: Labels | None, field_selector: Fields | None) -> None:
    for name in _names(namespaces):
        if faults := names.dns1123_label(name):
            raise ValueError(f"{owner}: namespace {name!r} cannot be: {'; '.join(faults)}")
    if label_selector:
        label_text(label_selector)
    if field_selector:
        field_text(field_selector)


_ONE_OF = (Operator.EQUALS, Operator.DOUBLE_EQUALS, Operator.IN)
_NONE_OF = (Operator.NOT_EQUALS, Operator.NOT_IN)


def implies(queried: Selector, cached: Selector) -> bool:
    """Return whether ``cached`` selects everything that ``queried`` selects. False if that cannot be derived from single requirements."""
    return all(any(_implies(requirement, required) for requirement in queried.requirements) for required in cached.requirements)


def _implies(requirement: Requirement, required: Requirement) -> bool:
    if requirement.key != required.key:
        return False
    if required.operator is Operator.EXISTS:
        return requirement.operator not in (*_NONE_OF, Operator.DOES_NOT_EXIST)
    if requirement.operator in _ONE_OF:
        return all(_accepts(required, value) for value in requirement.values)
    if required.operator in _NONE_OF:
        excludes = requirement.operator in _NONE_OF and set(required.values) <= set(requirement.values)
        return excludes or requirement.operator is Operator.DOES_NOT_EXIST
    return (requirement.operator, requirement.values) == (required.operator, required.values)


def _accepts(required: Requirement, value: str) -> bool:
    return Selector((required,)).matches({required.key: value})


R = TypeVar("R", bound=Resource)
Where = Mapping[str, str | int | bool | None]


class CacheReader:
    """Reads the caches of one controller. Results are new objects that belong to the caller; own writes are visible immediately.

    Guarantees
        A read of objects that the cache does not hold raises an error that says how to cache them: an undeclared kind, whole objects of a
        kind of which only metadata is cached, a namespace or selection outside of the manager's ``scope``.
        Several fields are ANDed, for cluster-scoped kinds too.

    Not guaranteed
        Completeness: ``list`` without a selector returns all cached objects, not all of the cluster. ``client`` reads the newest state.

    Args:
        owner: Name of the controller's class, for messages.
        informers: Informer by kind.

    Example:
        >>> class Labeler(Controller[ConfigMap], reads=[Secret]):
        ...     async def reconcile(self, config_map: ConfigMap) -> None:
        ...         secret = self.cached.get(Secret, config_map.metadata.name, config_map.metadata.namespace)
    """

    # Behaviours S223-S226.

    __slots__ = ("_informers", "_owner")

    def __init__(self, owner: str, informers: Mapping[type[Resource], Informer[Any]]) -> None:
        self._owner = owner
        self._informers = dict(informers)

    @property
    def kinds(self) -> builtins.list[type[Resource]]:
        """The readable kinds, whole or metadata only."""
        return builtins.list(self._informers)

    def get(self, kind: type[R], name: str, namespace: str | None = None) -> R | None:
        """Return one object; None if it is not in the cache.

        Raises:
            DeclarationError, OutsideScope: the cache does not hold such objects.
            DecodeError: the object does not fit its type.
        """
        return self.lister(kind).get(name, namespace)

    def by_key(self, kind: type[R], key: ObjectKey) -> R | None:
        """Return one object by its key; see ``get``."""
        return self.lister(kind).by_key(key)

    def list(
        self, kind: type[R], namespace: str | None = None, *, label_selector: Labels | None = None, field_selector: Where | None = None
    ) -> builtins.list[R]:
        """Return all cached objects that match.

        Args:
            kind: Class of the objects.
            namespace: One namespace. None: all cached namespaces.
            label_selector: Only matching objects.
            field_selector: Only objects with these values: path -> value. The paths must be indexed or read (``indexes=``, ``paths=``).

        Raises:
            DeclarationError: the kind is not cached, or only its metadata.
            UnreadPath: a path is not read.
            OutsideScope: the namespace or selection is not cached.
        """
        self._check(kind, label_selector, field_selector)
        return self.lister(kind).list(namespace, label_selector, field_selector)

    def heads(
        self,
        kind: type[Resource],
        namespace: str | None = None,
        *,
        label_selector: Labels | None = None,
        field_selector: Where | None = None,
    ) -> builtins.list[Head]:
        """Return the heads of all cached objects that match, without decoding; also of kinds of which only metadata is cached.

        Args:
            kind: See ``list``.
            namespace: See ``list``.
            label_selector: See ``list``.
            field_selector: See ``list``.
        """
        self._check(kind, label_selector, field_selector)
        return self._held(kind).lister.heads(namespace, label_selector, field_selector)

    def lister(self, kind: type[R]) -> Lister[R]:
        """Return the lister of a kind's informer. Its queries are not checked against the informer's selection.

        Raises:
            DeclarationError: the kind is not cached, or only its metadata.
        """
        return self.informer(kind).lister

    def metadata_lister(self, kind: type[Resource]) -> Lister[PartialObject]:
        """Return the lister of a kind of which only metadata is cached.

        Raises:
            DeclarationError: the kind is not cached, or whole objects are.
        """
        informer = self._held(kind)
        if not informer.scope.keep.metadata_only:
            name = kind.__name__
            raise DeclarationError(f"{self._owner} keeps {name} objects in full; read them with lister({name})")
        return cast("Lister[PartialObject]", informer.lister)

    def informer(self, kind: type[R]) -> Informer[R]:
        """Return the informer of a kind that is cached as a whole.

        Raises:
            DeclarationError: see ``lister``.
        """
        informer: Informer[R] = self._held(kind)
        if informer.scope.keep.metadata_only:
            name = kind.__name__
            raise DeclarationError(
                f"{self._owner} keeps only the metadata of {name} objects; read it with metadata_lister({name}), or remove metadata_only"
            )
        return informer

    def _held(self, kind: type[Resource]) -> Informer[Any]:
        informer = self._informers.get(kind)
        if informer is None:
            name = kind.__name__
            raise DeclarationError(f"{self._owner} has no informer for {name}; name it in owns=[...], watches=[...] or reads=[{name}]")
        return informer

    def _check(self, kind: type[Resource], label_selector: Labels | None, field_selector: Where | None) -> None:
        """Check that a selection is within the cached objects."""
        scope = self._held(kind).scope
        if label_selector is not None and scope.label_selector:
            cached, queried = parse_label_selector(scope.label_selector), selector_of(label_selector)
            if not implies(queried, cached):
                self._refuse(kind, f'labels "{cached}"', f'labels "{queried}"')
        if field_selector is not None and scope.field_selector:
            selected = parse_field_selector(scope.field_selector)
            asked_of = {path: "" if value is None else str(value) for path, value in field_selector.items()}
            if any(term.field in asked_of and not term.matches(asked_of) for term in selected.terms):
                self._refuse(kind, f'fields "{selected}"', f"fields {dict(field_selector)}")

    def _refuse(self, kind: type[Resource], cached: str, queried: str) -> None:
        name = kind.__name__
        raise OutsideScope(
            f"{self._owner}: the cache holds {name} objects with {cached} only, and {queried} may select others; query less, "
            f"widen the manager's scope (CacheScope(kinds={{{name}: KindCacheScope(...)}})), or query the server: client.list({name}, ...)"
        )
