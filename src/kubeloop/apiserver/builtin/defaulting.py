"""Defaults of built-in kinds, and fields that they drop: functions by Go type, applied from the outside in wherever such a value stands.

As upstream's generated defaulters do, so one rule for probes serves pods and every pod template.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from kubeloop.apiserver.builtin.defaults_core import CORE
from kubeloop.apiserver.builtin.defaults_others import OTHERS
from kubeloop.apiserver.builtin.defaults_workloads import WORKLOADS
from kubeloop.apiserver.builtin.gated import GATED
from kubeloop.meta.kinds import GroupVersionKind
from kubeloop.schema.strict_types import wire_types

JSONObject = dict[str, Any]
Visit = Callable[[Any], None]

#: Go type name (as ``v1.Probe``) to what fills such a value in.
_RULES: dict[str, Visit] = {**CORE, **WORKLOADS, **OTHERS}


def apply_defaults(obj: JSONObject, gvk: GroupVersionKind) -> None:
    """Fill in the defaults of a built-in kind, in place.

    Requires
        ``obj`` has been through ``schema.strict.conform``.
    """
    visit = _visitor_of_kind(gvk)
    if visit is not None:
        visit(obj)


def drop_gated(obj: JSONObject, gvk: GroupVersionKind) -> None:
    """Drop what is behind closed gates, in place."""
    visit = _dropper_of_kind(gvk)
    if visit is not None:
        visit(obj)


@cache
def _visitor_of_kind(gvk: GroupVersionKind) -> Visit | None:
    index = wire_types().kind(gvk)
    if index is None:
        return None
    below = _visitor(index, ())
    rule = _RULES.get("/".join(gvk))
    return _sequence(rule, below)


@cache
def _dropper_of_kind(gvk: GroupVersionKind) -> Visit | None:
    index = wire_types().kind(gvk)
    return None if index is None else _visitor(index, (), gates=True)


def _sequence(first: Visit | None, second: Visit | None) -> Visit | None:
    if first is None or second is None:
        return first or second

    def visit(value: Any) -> None:
        first(value)
        second(value)

    return visit


@cache
def _visitor(index: int, above: tuple[int, ...], *, gates: bool = False) -> Visit | None:
    """What applies all rules at and below a type; None when there are none. Types that contain themselves have no rules inside.

    ``gates``: the rules of ``GATED`` instead of those for defaults.
    """
    if index in above:
        return None
    kind, path = wire_types().type(index), (*above, index)
    rule = (GATED if gates else _RULES).get(kind.name)
    if kind.category == "pointer":
        return _visitor(kind.element, path, gates=gates)
    if kind.category == "slice":
        return _each(_visitor(kind.element, path, gates=gates))
    if kind.category == "map":
        return _sequence(rule, _values(_visitor(kind.element, path, gates=gates)))
    if kind.category != "struct":
        return None
    fields = [(one.name, visit) for one in kind.fields if (visit := _visitor(one.type, path, gates=gates)) is not None]
    return _sequence(rule, _fields(fields))


def _each(visit: Visit | None) -> Visit | None:
    if visit is None:
        return None

    def each(values: Any) -> None:
        for value in values:
            visit(value)

    return each


def _values(visit: Visit | None) -> Visit | None:
    if visit is None:
        return None

    def each(values: Any) -> None:
        for value in values.values():
            visit(value)

    return each


def _fields(fields: list[tuple[str, Visit]]) -> Visit | None:
    if not fields:
        return None

    def each(obj: Any) -> None:
        for name, visit in fields:
            value = obj.get(name)
            if value is not None:
                visit(value)

    return each
