"""Watches: what else leads to a reconcile. ``Owns`` for kinds that the controller creates, ``Watch`` for others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from kubeloop.controller.handler.mapping import MapFunc, MapHead
from kubeloop.controller.handler.predicates import Predicate
from kubeloop.meta import Resource

R = TypeVar("R", bound=Resource)


@dataclass(frozen=True, slots=True)
class Watch(Generic[R]):
    """Reconcile what ``to`` names whenever an object of ``kind`` changes and all ``predicates`` agree.

    ``to`` is called with the new state and, for an update, with the old one too (so that what an object no longer refers to is
    reconciled as well); keys named twice are reconciled once (behaviour R218). It is one of

    - a mapping: ``to_owner(Foo)``, ``to_label("example.com/foo")``, ``to_field("spec.fooName")``, ``to_index("secret")``, ``to_same_name``;
    - a function of a ``Head``, plain or async: an async one holds back the later events of that kind, and nothing else;
    - the name of a method of the controller, for functions that want its listers or its client.

    ``paths`` (wire names) are read into the heads that it gets:
    ``Watch(Pod, to=lambda pod: [ObjectKey("", "", pod.value("spec.nodeName"))], paths=["spec.nodeName"])``.
    ``metadata_only``: nothing but metadata is asked of the server; ``metadata_lister(kind)`` reads it.
    """

    kind: type[R]
    to: MapHead | MapFunc | str
    predicates: tuple[Predicate, ...] = ()
    paths: tuple[str, ...] = ()
    metadata_only: bool = False


@dataclass(frozen=True, slots=True)
class Owns(Generic[R]):
    """A kind that the controller creates: its owner is reconciled when it changes. ``owns=[Deployment]`` is short for it.

    The owner is the controller reference; with ``every_owner``, each owner reference of the kind counts.
    ``predicates``, ``metadata_only``: as for ``Watch``.
    """

    kind: type[R]
    every_owner: bool = False
    predicates: tuple[Predicate, ...] = ()
    metadata_only: bool = False
