"""The parts of a CustomResourceDefinition version beyond its schema, and the decorators that attach them to a class."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeVar

import msgspec

from kubeloop.declare.markers import Marker, Reason, Rule

C = TypeVar("C", bound=type)


class Column(msgspec.Struct, frozen=True):
    """A column of ``kubectl get``. ``json_path`` begins with a dot; columns of a priority above 0 are shown by ``-o wide`` only.

    >>> from kubeloop.declare import crd
    >>> @crd(columns=[Column("Size", ".spec.size", type="integer")])
    ... @custom_resource("example.com/v1", plural="databases")
    ... class Database(Resource):
    ...     pass
    """

    name: str
    json_path: str
    type: Literal["boolean", "date", "integer", "number", "string"] = "string"
    description: str = ""
    format: str = ""
    priority: int = 0


class Scale(msgspec.Struct, frozen=True):
    """The scale subresource: paths of the desired replicas, of the counted replicas, and of the selector (as text) for autoscalers.

    >>> from kubeloop.declare import crd
    >>> @crd(scale=Scale(spec_replicas=".spec.size", status_replicas=".status.size"))
    ... @custom_resource("example.com/v1", plural="databases")
    ... class Database(Resource):
    ...     pass
    """

    spec_replicas: str = ".spec.replicas"
    status_replicas: str = ".status.replicas"
    label_selector: str = ""


class CrdVersion(msgspec.Struct, frozen=True):
    """One version of a custom kind.

    >>> from kubeloop.declare import crd, crd_version
    >>> @crd(deprecated=True)
    ... @custom_resource("example.com/v1alpha1", plural="databases")
    ... class Database(Resource):
    ...     pass
    >>> crd_version(Database).deprecated
    True

    ``status`` None: there is a status subresource if the class has a field ``status``. ``storage`` None: the only version is stored.
    ``list_kind``, ``conversion``, ``labels`` and ``annotations`` belong to the whole definition: set them on the storage version.
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
    """Declare the parts of a CustomResourceDefinition beside the schema for a ``@custom_resource`` class.

    Args:
        columns: Columns of ``kubectl get``.
        scale: The scale subresource. None: there is none.
        status: Whether there is a status subresource. None: if the class has a field ``status``.
        served: Whether the version is served.
        storage: Whether objects are stored in this version. None: if it is the only one.
        deprecated: Whether servers warn about the version.
        deprecation_warning: The text of that warning. Empty: the server's.
        selectable_fields: Paths that field selectors may name.
        list_kind: The kind of lists. Empty: the kind with ``List``.
        conversion: ``spec.conversion``. None: no conversion.
        labels: Labels of the definition.
        annotations: Annotations of the definition.

    Returns:
        A class decorator.
    """
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
    """Attach markers to every value of a class, as ``Annotated`` does for a field. Subclasses inherit them."""

    def attach(cls: C) -> C:
        # Decorators run from the bottom up; the result lists them from the top down.
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
    """Attach a CEL rule to a class: ``@rule("self.min <= self.max", message="...")``. On a field use ``Annotated[int, Rule(...)]``.

    Args:
        expression: The CEL expression; it must be true for a valid object.
        message: The error for an invalid object. Empty: the server names the expression.
        message_expression: A CEL expression that returns the message; it takes precedence over ``message``.
        reason: The reason of the error. None: ``FieldValueInvalid``.
        field_path: The field that the error names, relative to the class.
        optional_old_self: True: ``oldSelf`` is an optional, and the rule runs on create too.

    Returns:
        A class decorator.
    """
    return constrain(Rule(expression, message, message_expression, reason, field_path, optional_old_self))


def crd_version(cls: type) -> CrdVersion:
    """Return the ``CrdVersion`` that ``crd`` attached to a class; the defaults if there is none."""
    found = cls.__dict__.get(_CRD)
    return found if isinstance(found, CrdVersion) else CrdVersion()


def constraints_of(cls: type) -> tuple[Marker, ...]:
    """Return the markers of a class, those of its bases first."""
    return tuple(marker for base in reversed(cls.__mro__) for marker in base.__dict__.get(_CONSTRAINTS, ()))


_CRD = "__crd__"
_CONSTRAINTS = "__constraints__"
