"""The declaration of a controller class, read and checked once per class: kind, owned kinds, watches, predicates, workers."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, get_args, get_origin

from kubeloop.controller.errors import DeclarationError
from kubeloop.controller.handler.map_funcs import MapFunc
from kubeloop.controller.handler.predicates import Predicate
from kubeloop.controller.handler.watch import Channel, Owns, WatchedKind
from kubeloop.meta import ObjectKey, Resource, UnknownKind, Unstructured, kind_info
from kubeloop.meta.type_checks import described, described_word
from kubeloop.transport import logger_with_context
from kubeloop.workqueue import ExponentialLimiter, Limiter

_LOG = logger_with_context("kubeloop.controller.runner")

#: Verbs of writes.
WRITE_VERBS: Final = ("create", "delete", "patch", "update")


class ContainedLimiter:
    """Wraps a limiter of a controller class: if it raises or returns an invalid time, the default delay applies.

    The failure of each method is logged, with a traceback the first time.
    """

    def __init__(self, limiter: Limiter[ObjectKey], owner: str) -> None:
        self._limiter = limiter
        self._owner = owner
        self._default: ExponentialLimiter[ObjectKey] = ExponentialLimiter()
        self._reported: set[str] = set()

    def delay(self, item: ObjectKey) -> float:
        pause = self._default.delay(item)
        try:
            answer: object = self._limiter.delay(item)
            if not isinstance(answer, int | float) or isinstance(answer, bool) or math.isnan(answer):
                raise TypeError(f"it returned {described_word(answer)}, which is not a number of seconds")
        except Exception as error:  # noqa: BLE001  # whatever it is, the key must be tried again
            self._report("delay", item, error, f"retrying in {pause:g} s, as with the default limiter")
            return pause
        return answer

    def forget(self, item: ObjectKey) -> None:
        self._default.forget(item)
        try:
            self._limiter.forget(item)
        except Exception as error:  # noqa: BLE001  # a failing limiter must not end the worker
            self._report("forget", item, error, "its next failure may wait too long")

    def retries(self, item: ObjectKey) -> int:
        try:
            return int(self._limiter.retries(item))
        except Exception as error:  # noqa: BLE001  # a failing limiter must not end the worker
            self._report("retries", item, error, "using the count of the default limiter")
            return self._default.retries(item)

    def _report(self, method: str, key: ObjectKey, error: Exception, consequence: str) -> None:
        shown = None if method in self._reported else error
        self._reported.add(method)
        _LOG.error(
            "%s: %s of the limiter that retry_limiter returned failed for %s: %s: %s; %s",
            self._owner,
            method,
            key,
            type(error).__name__,
            error,
            consequence,
            exc_info=shown,
        )


def contained_limiter(limiter: Limiter[ObjectKey], owner: str) -> Limiter[ObjectKey]:
    """Wrap a controller's limiter so that its errors are logged and the default delay applies; an ``ExponentialLimiter`` stays as it is.

    ``owner`` is the name of the controller's class, for messages.
    """
    kind: type[object] = type(limiter)
    return limiter if kind is ExponentialLimiter else ContainedLimiter(limiter, owner)


def contained_tenants(tenant: Callable[[ObjectKey], Hashable] | None, owner: str) -> Callable[[ObjectKey], Hashable] | None:
    """Wrap a controller's tenant function: if it raises for a key, the error is logged and the key's tenant is None."""
    if tenant is None:
        return None
    reported = False

    def whose(key: ObjectKey) -> Hashable:
        nonlocal reported
        try:
            answer = tenant(key)
            hash(answer)
        except Exception as error:  # noqa: BLE001 - the user's function may raise anything; the key must not be lost
            shown = None if reported else error
            _LOG.log(
                logging.ERROR,
                "%s: the function that tenants() returned failed for %s: %s: %s; such keys take turns as one tenant",
                owner,
                key,
                type(error).__name__,
                error,
                exc_info=shown,
            )
            reported = True
            return None
        return answer

    return whose


@dataclass(frozen=True, slots=True)
class Declaration:
    """The checked options of a controller class; ``name`` is never empty. See ``ControllerBase`` for each option."""

    kind: type[Resource]
    name: str
    owns: tuple[Owns[Any], ...] = ()
    watches: tuple[WatchedKind[Any], ...] = ()
    reads: tuple[type[Resource], ...] = ()
    gets: tuple[type[Resource], ...] = ()
    writes: tuple[type[Resource], ...] = ()
    status_writes: tuple[type[Resource], ...] = ()
    write_verbs: dict[type[Resource], tuple[str, ...]] = field(default_factory=dict)
    predicates: tuple[Predicate, ...] = ()
    workers: int = 1
    timeout: float | None = None
    debounce: float = 0.0
    indexes: dict[type[Resource], dict[str, Any]] = field(default_factory=dict)
    warm_up: bool = False
    needs_leader: bool = True
    pause_annotation: str = ""
    metadata_only: bool = False

    @property
    def cached_kinds(self) -> frozenset[type[Resource]]:
        """The kinds that informers cache whole for this controller."""
        own = () if self.metadata_only else (self.kind,)
        watched = (watch.kind for watch in self.watches if not watch.metadata_only)
        return frozenset([*own, *(owned.kind for owned in self.owns if not owned.metadata_only), *watched, *self.reads])


def kind_argument(cls: type[Any], base: type[Any]) -> type[Resource] | None:
    """Return the kind ``Foo`` that ``class FooController(Controller[Foo])`` or one of its base classes names; None if none does.

    Raises:
        DeclarationError: the argument in square brackets is neither a kind nor a type variable.
    """
    for candidate in cls.__mro__:
        for parent in candidate.__dict__.get("__orig_bases__", ()):
            origin = get_origin(parent)
            if isinstance(origin, type) and issubclass(origin, base):
                (argument,) = get_args(parent)[:1]
                if isinstance(argument, type) and issubclass(argument, Resource):
                    _check_kind(cls, f"Controller[{argument.__name__}]", argument)
                    return argument
                if not isinstance(argument, TypeVar):
                    raise DeclarationError(
                        f"{cls.__name__}: {described_word(argument)} is not a kind; write Controller[Foo] with Foo a Resource subclass"
                    )
    return None


def checked(cls: type[Any], attribute: str, of: type[Any]) -> tuple[Any, ...]:
    """Return the items of a class attribute as a tuple, after a check that each is an instance of ``of`` (a subclass, for ``Resource``).

    Raises:
        DeclarationError: the attribute is not a sequence of such items, for example a single class instead of a list.
    """
    value = getattr(cls, attribute)
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise DeclarationError(f"{cls.__name__}: {attribute} must be a list, such as {attribute}=[...], not {described(value)}")
    for item in value:
        matches = isinstance(item, type) and issubclass(item, of) if of is Resource else isinstance(item, of)
        if not matches:
            raise DeclarationError(
                f"{cls.__name__}: {attribute} holds {described_word(item)}, which is not a {'kind' if of is Resource else of.__name__}"
            )
        if of is Resource:
            _check_kind(cls, attribute, item)
    return tuple(value)


def checked_owns(cls: type[Any]) -> tuple[Owns[Any], ...]:
    """Return the attribute ``owns`` of a class, which may mix kinds and ``Owns``, as ``Owns`` only.

    Raises:
        DeclarationError: ``owns`` is not a list, or has an item that is neither a kind nor ``Owns``.
    """
    value = getattr(cls, "owns")  # noqa: B009  # the attribute of a class that this module must not import
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise DeclarationError(f"{cls.__name__}: owns must be a list, such as owns=[...], not {described(value)}")
    result = []
    for item in value:
        if isinstance(item, type) and issubclass(item, Resource):
            _check_kind(cls, "owns", item)
            result.append(Owns(item))
        elif isinstance(item, Owns):
            _check_kind(cls, "owns", item.kind)
            _check_predicates(cls, f"owns {item.kind.__name__}", item.predicates)
            result.append(item)
        else:
            raise DeclarationError(f"{cls.__name__}: owns holds {described_word(item)}, which is not a kind")
    return tuple(result)


def check_watches(cls: type[Any], watches: Sequence[WatchedKind[Any]]) -> None:
    """Check that each watch has a usable mapping and predicates.

    Raises:
        DeclarationError: a watch is invalid; the message names it and the reason.
    """
    for watch in watches:
        _check_kind(cls, "watches", watch.kind)
        attribute = f"the watch of {watch.kind.__name__}"
        _check_predicates(cls, attribute, watch.predicates)
        if isinstance(watch.to, str):
            if not callable(getattr(cls, watch.to, None)):
                raise DeclarationError(
                    f'{cls.__name__}: {attribute} maps by "{watch.to}", which is not a method of it; def {watch.to}(self, head)'
                )
        elif not isinstance(watch.to, MapFunc) and not callable(watch.to):
            raise DeclarationError(
                f"{cls.__name__}: {attribute} maps by {described_word(watch.to)}; give to_owner(...), to_label(...), to_field(...), "
                "to_index(...), a function of a Head, or the name of a method"
            )


def check_numbers(cls: type[Any]) -> None:
    """Check workers, time limit and debounce.

    Raises:
        DeclarationError: a number is invalid.
    """
    workers: object = cls.workers
    if not isinstance(workers, int) or isinstance(workers, bool) or workers < 1:
        raise DeclarationError(f"{cls.__name__}: workers must be a number of at least 1, not {described_word(workers)}")
    timeout: object = cls.timeout
    if timeout is not None and (not isinstance(timeout, int | float) or isinstance(timeout, bool) or not timeout > 0):
        raise DeclarationError(
            f"{cls.__name__}: timeout must be a number of seconds above 0, or None for no limit, not {described_word(timeout)}"
        )
    debounce: object = cls.debounce
    if not isinstance(debounce, int | float) or isinstance(debounce, bool) or not 0 <= debounce < math.inf:
        raise DeclarationError(f"{cls.__name__}: debounce must be a number of seconds, or 0 for none, not {described_word(debounce)}")


def check_option_types(cls: type[Any]) -> None:
    """Check name, pause annotation, indexes and boolean options.

    Raises:
        DeclarationError: an option has a wrong type.
    """
    for attribute in ("name", "pause_annotation"):
        if not isinstance(getattr(cls, attribute), str):
            raise DeclarationError(f"{cls.__name__}: {attribute} must be text, not {described_word(getattr(cls, attribute))}")
    for attribute in ("warm_up", "needs_leader", "metadata_only"):
        if not isinstance(getattr(cls, attribute), bool):
            raise DeclarationError(f"{cls.__name__}: {attribute} must be True or False, not {described_word(getattr(cls, attribute))}")
    _check_write_verbs(cls, cls.write_verbs)
    indexes: object = cls.indexes
    if not isinstance(indexes, Mapping):
        raise DeclarationError(f'{cls.__name__}: indexes must be as {{Pod: {{"node": "spec.nodeName"}}}}, not {described_word(indexes)}')
    for kind, named in indexes.items():
        _check_kind(cls, "indexes", kind)
        if not isinstance(named, Mapping):
            raise DeclarationError(
                f'{cls.__name__}: indexes of {kind.__name__} must be as {{"node": "spec.nodeName"}}, not {described_word(named)}'
            )


def _check_write_verbs(cls: type[Any], value: object) -> None:
    if not isinstance(value, Mapping):
        raise DeclarationError(f'{cls.__name__}: write_verbs must be as {{Pod: ["create", "patch"]}}, not {described_word(value)}')
    for kind, verbs in value.items():
        _check_kind(cls, "write_verbs", kind)
        if isinstance(verbs, str) or not isinstance(verbs, Sequence) or not all(verb in WRITE_VERBS for verb in verbs):
            raise DeclarationError(
                f"{cls.__name__}: write_verbs of {kind.__name__} must be a list of {', '.join(WRITE_VERBS)}, not {described_word(verbs)}"
            )


def checked_sources(name: str, value: object) -> tuple[Channel[Any], ...]:
    """Return the ``sources`` of a class or of an instance.

    Raises:
        DeclarationError: the value is not a list of channels.
    """
    if not isinstance(value, Sequence) or isinstance(value, str) or any(not isinstance(one, Channel) for one in value):
        raise DeclarationError(f"{name}: sources must be a list of Channel, such as sources=[Channel(queue)], not {described(value)}")
    return tuple(value)


def _check_kind(cls: type[Any], attribute: str, kind: object) -> None:
    if not (isinstance(kind, type) and issubclass(kind, Resource)):
        raise DeclarationError(f"{cls.__name__}: {attribute} holds {described_word(kind)}, which is not a kind")
    if issubclass(kind, Unstructured) and not kind.kind:
        raise DeclarationError(
            f'{cls.__name__}: {attribute}: Unstructured alone is not a kind; say which: Unstructured.for_kind("example.com/v1", "Foo")'
        )
    try:
        kind_info(kind)
    except UnknownKind as error:
        raise DeclarationError(f"{cls.__name__}: {attribute}: {error}") from None


def _check_predicates(cls: type[Any], attribute: str, predicates: object) -> None:
    if not isinstance(predicates, Sequence) or any(not isinstance(one, Predicate) for one in predicates):
        raise DeclarationError(f"{cls.__name__}: predicates of {attribute} must be a list of Predicate, not {described_word(predicates)}")


#: Attribute of a method that the decorators of ``HandlerController`` set.
MARK: Final = "__kubeloop_handlers__"


def check_no_handlers(cls: type[Any]) -> None:
    """Check that a class that is not a ``HandlerController`` has no handlers.

    Raises:
        DeclarationError: the class has handlers, which would never be called.
    """
    for name, member in vars(cls).items():
        if hasattr(member, MARK):
            raise DeclarationError(
                f"{cls.__name__}.{name} is a handler (@on_create, @on_change, ...), which only a HandlerController calls; "
                f"derive {cls.__name__} from HandlerController, without reconcile, or remove the decorator"
            )
