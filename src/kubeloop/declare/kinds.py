"""What a CustomResourceDefinition says about one version of a kind beyond its schema, and the decorators that attach it to a class."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeVar

import msgspec

from kubeloop.declare.markers import Marker, Reason, Rule

C = TypeVar("C", bound=type)


class Column(msgspec.Struct, frozen=True):
    """A column of ``kubectl get``. ``json_path`` begins with a dot; columns of a priority above 0 are shown by ``-o wide`` only."""

    name: str
    json_path: str
    type: Literal["boolean", "date", "integer", "number", "string"] = "string"
    description: str = ""
    format: str = ""
    priority: int = 0


class Scale(msgspec.Struct, frozen=True):
    """The scale subresource: where replicas are asked for, where they are counted, and the selector (as text) that autoscalers read."""

    spec_replicas: str = ".spec.replicas"
    status_replicas: str = ".status.replicas"
    label_selector: str = ""


class CrdVersion(msgspec.Struct, frozen=True):
    """One version of a custom kind.

    ``status`` None: there is a status subresource if the class has a field ``status``. ``storage`` None: it is the only version.
    ``list_kind``, ``conversion``, ``labels`` and ``annotations`` belong to the whole definition: say them on the storage version.
    """

    columns: tuple[Column, ...] = ()
    scale: Scale | None = None
    status: bool | None = None
    served: bool = True
    storage: bool | None = None
    deprecated: bool = False
    deprecation_warning: str = ""
    selectable_fields: tuple[str, ...] = ()
    list_kind: str = ""
    conversion: Mapping[str, Any] = {}
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


def crd(
    *,
    columns: Iterable[Column] = (),
    scale: Scale | None = None,
    status: bool | None = None,
    served: bool = True,
    storage: bool | None = None,
    deprecated: bool = False,
    deprecation_warning: str = "",
    selectable_fields: Iterable[str] = (),
    list_kind: str = "",
    conversion: Mapping[str, Any] | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Callable[[C], C]:
    """Say what the CustomResourceDefinition of a ``@custom_resource`` class holds beside its schema (fields of ``CrdVersion``)."""
    version = CrdVersion(
        columns=tuple(columns),
        scale=scale,
        status=status,
        served=served,
        storage=storage,
        deprecated=deprecated,
        deprecation_warning=deprecation_warning,
        selectable_fields=tuple(selectable_fields),
        list_kind=list_kind,
        conversion=conversion or {},
        labels=labels or {},
        annotations=annotations or {},
    )

    def attach(cls: C) -> C:
        setattr(cls, _CRD, version)
        return cls

    return attach


def constrain(*markers: Marker) -> Callable[[C], C]:
    """Say something of every value of a class, as ``Annotated`` does of a field. Subclasses inherit it."""

    def attach(cls: C) -> C:
        # Decorators run from the bottom up; what is read first shall come first.
        setattr(cls, _CONSTRAINTS, (*markers, *cls.__dict__.get(_CONSTRAINTS, ())))
        return cls

    return attach


def rule(
    expression: str,
    *,
    message: str = "",
    message_expression: str = "",
    reason: Reason | None = None,
    field_path: str = "",
    optional_old_self: bool | None = None,
) -> Callable[[C], C]:
    """A CEL rule over a class: ``@rule("self.min <= self.max", message="...")``. On a field: ``Annotated[int, Rule(...)]``."""
    return constrain(Rule(expression, message, message_expression, reason, field_path, optional_old_self))


def crd_version(cls: type) -> CrdVersion:
    """What was said about a class by ``crd``; else what holds when nothing is said."""
    found = cls.__dict__.get(_CRD)
    return found if isinstance(found, CrdVersion) else CrdVersion()


def constraints_of(cls: type) -> tuple[Marker, ...]:
    """Markers of a class, its bases' first."""
    return tuple(marker for base in reversed(cls.__mro__) for marker in base.__dict__.get(_CONSTRAINTS, ()))


_CRD = "__crd__"
_CONSTRAINTS = "__constraints__"
