"""Optional values: ``optional.of``, ``.orValue``, ``a.?b``, ``a[?b]``. Source: cel-go cel/library.go, optional types version 1."""

from __future__ import annotations

from typing import Any

from kubeloop.cel.faults import EvalError
from kubeloop.cel.functions.operators import list_index
from kubeloop.cel.overloads import function, member
from kubeloop.cel.values import NONE, Optional, UInt, as_key, check_qualifier

_EMPTY: tuple[Any, ...] = ()


def _is_zero(value: Any) -> bool:
    if value is None:
        return True
    if isinstance(value, bool | int | float | UInt | str | bytes | list | dict):
        return not value
    return False


def _value(of: Optional) -> Any:
    if not of.present:
        raise EvalError("optional.none() dereference")
    return of.value


def select(of: Any, key: Any) -> Optional:
    """Return the value at a field, key or index of ``of`` as an optional; ``NONE`` if there is no such value.

    ``of`` may itself be an optional, whose value is used.

    Raises:
        EvalError: The key is not a string, bool or number, or it cannot be an index of a list.
    """
    check_qualifier(key)
    if isinstance(of, Optional):
        if not of.present:
            return NONE
        of = of.value
    if isinstance(of, dict):
        key = as_key(key)
        return Optional(of[key]) if key in of else NONE
    if isinstance(of, list):
        index = list_index(key)
        return Optional(of[index]) if 0 <= index < len(of) else NONE
    return NONE


function("optional.of", "V -> optional(V)", "optional_of")(Optional)
function("optional.ofNonZeroValue", "V -> optional(V)", "optional_ofNonZeroValue")(
    lambda value: NONE if _is_zero(value) else Optional(value)
)
function("optional.none", "-> optional(V)", "optional_none")(lambda: NONE)
member("value", "optional(V) -> V", "optional_value")(_value)
member("hasValue", "optional(V) -> bool", "optional_hasValue")(lambda optional: optional.present)
member("or", "optional(V), optional(V) -> optional(V)", "optional_or_optional")(
    lambda optional, other: optional if optional.present else other
)
member("orValue", "optional(V), V -> V", "optional_orValue_value")(
    lambda optional, default: optional.value if optional.present else default
)
function("_?._", "dyn, string -> optional(V)", "select_optional_field")(select)
function("_[?_]", "list(V), int -> optional(V)", "list_optindex_optional_int")(select)
function("_[?_]", "optional(list(V)), int -> optional(V)", "optional_list_optindex_optional_int")(select)
function("_[?_]", "map(K, V), K -> optional(V)", "map_optindex_optional_value")(select)
function("_[?_]", "optional(map(K, V)), K -> optional(V)", "optional_map_optindex_optional_value")(select)
function("_[_]", "optional(list(V)), int -> optional(V)", "optional_list_index_int")(select)
function("_[_]", "optional(map(K, V)), K -> optional(V)", "optional_map_index_value")(select)
member("first", "list(V) -> optional(V)", "list_first")(lambda items: Optional(items[0]) if items else NONE)
member("last", "list(V) -> optional(V)", "list_last")(lambda items: Optional(items[-1]) if items else NONE)


@function("optional.unwrap", "list(optional(V)) -> list(V)", "optional_unwrap")
@member("unwrapOpt", "list(optional(V)) -> list(V)", "optional_unwrapOpt")
def _unwrap(items: list[Any]) -> list[Any]:
    return [one.value if isinstance(one, Optional) else one for one in items if not isinstance(one, Optional) or one.present]
