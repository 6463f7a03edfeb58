"""Which devices fit: CEL about ``device``, compiled when it is written.

Source: k8s.io/dynamic-resource-allocation cel/compile.go, with the feature gates of a default 1.36 server.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from kubeloop.apiserver.builtin.devices.collections import items
from kubeloop.apiserver.builtin.devices.names import DOMAIN, IDENTIFIER
from kubeloop.cel import CompileError, Environment, compile_expression, types
from kubeloop.cel.estimate import CostRange, Path
from kubeloop.meta.field_error import Errors, forbidden, invalid, required, too_long
from kubeloop.types import JSONObject

_LONGEST: Final = 10 * 1024
_COST_LIMIT: Final = 1_000_000
#: Selectors of one list.
MOST: Final = 32
_MOST_ATTRIBUTES: Final = 32
_LONGEST_ATTRIBUTE: Final = 64

_DEVICE: Final = types.struct("kubernetes.DRADevice")
_ENVIRONMENT: Final = Environment(
    {"device": _DEVICE},
    {
        _DEVICE.name: {
            "driver": types.STRING,
            "allowMultipleAllocations": types.BOOL,
            "attributes": types.map_of(types.STRING, types.map_of(types.STRING, types.ANY)),
            "capacity": types.map_of(types.STRING, types.map_of(types.STRING, types.QUANTITY)),
        }
    },
    bindings=True,
)


def selectors(path: str, found: list[JSONObject] | None) -> Errors:
    return items(path, found, MOST, _selector)


def _selector(path: str, selector: JSONObject) -> Errors:
    cel = selector.get("cel")
    if cel is None:
        yield required(f"{path}.cel")
        return
    path, expression = f"{path}.cel.expression", cel.get("expression", "")
    if len(expression.encode()) > _LONGEST:
        yield too_long(path, _LONGEST)
        return
    fault, too_costly = _judged(expression)
    if fault:
        yield invalid(path, expression, fault)
    elif too_costly:
        yield forbidden(path, "too complex, exceeds cost limit")


@lru_cache(maxsize=256)
def _judged(expression: str) -> tuple[str, bool]:
    """What is wrong with it, and whether it may cost too much."""
    try:
        program = compile_expression(expression, _ENVIRONMENT, _COST_LIMIT)
    except CompileError as fault:
        return f"compilation failed: {fault}", False
    if program.result not in (types.BOOL, types.ANY):
        return f"must evaluate to bool or the unknown type, not {program.result}", False
    return "", program.most_cost(_size_of) > _COST_LIMIT


def _size_of(path: Path) -> CostRange | None:
    """Attributes and capacities are bounded by what a slice may hold; any name below a domain is an attribute."""
    match path[1:]:
        case ():
            return CostRange(0, 0)
        case ("driver",):
            return CostRange(0, DOMAIN)
        case ("allowMultipleAllocations",):
            return CostRange(0, 1)
        case ("attributes" | "capacity",) | ("attributes" | "capacity", "@values"):
            return CostRange(0, _MOST_ATTRIBUTES)
        case ("attributes" | "capacity", "@keys"):
            return CostRange(0, DOMAIN)
        case ("attributes" | "capacity", "@values", "@keys"):
            return CostRange(0, IDENTIFIER)
        case ("attributes", "@values", _):
            return CostRange(0, _LONGEST_ATTRIBUTE)
        case ("capacity", "@values", "@values"):
            return CostRange(0, 0)
        case _:
            return None
