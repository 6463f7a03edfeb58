"""One requirement of a label selector: a key, an operator, values.

Source: k8s.io/apimachinery pkg/labels/selector.go (Requirement).
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping

import msgspec

from kubeloop.meta import names
from kubeloop.meta.field_error import FieldError, invalid

_INTEGER = re.compile(r"[-+]?[0-9]+", re.ASCII)


class Operator(enum.Enum):
    """An operator; the value is its text between key and values."""

    EQUALS = "="
    DOUBLE_EQUALS = "=="
    NOT_EQUALS = "!="
    IN = "in"
    NOT_IN = "notin"
    EXISTS = "exists"
    DOES_NOT_EXIST = "!"
    GREATER_THAN = "gt"
    LESS_THAN = "lt"


_ONE = (Operator.EQUALS, Operator.DOUBLE_EQUALS, Operator.NOT_EQUALS)
_SET = (Operator.IN, Operator.NOT_IN)
_NONE = (Operator.EXISTS, Operator.DOES_NOT_EXIST)
_ORDER = (Operator.GREATER_THAN, Operator.LESS_THAN)


class Requirement(msgspec.Struct, frozen=True):
    """A condition on one label. A missing label satisfies only NOT_EQUALS, NOT_IN and DOES_NOT_EXIST."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    @classmethod
    def checked(cls, key: str, operator: Operator, values: tuple[str, ...]) -> Requirement:
        """Validate and return a requirement.

        Raises:
            ValueError: the key, the number of values or a value is invalid; the message is Kubernetes'.
        """
        faults = [invalid("key", key, "; ".join(wrong))] if (wrong := names.qualified_name(key)) else []
        faults += _wrong_values(operator, values)
        faults += [
            invalid(f"values[{index}][{key}]", value, "; ".join(wrong))
            for index, value in enumerate(values)
            if (wrong := names.label_value(value))
        ]
        if faults:
            raise ValueError(aggregate(faults))
        return cls(key, operator, values)

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case Operator.EXISTS:
                return value is not None
            case Operator.DOES_NOT_EXIST:
                return value is None
            case Operator.NOT_EQUALS | Operator.NOT_IN:
                return value is None or value not in self.values
            case Operator.GREATER_THAN | Operator.LESS_THAN:
                return self._compares(value)
            case _:
                return value is not None and value in self.values

    def _compares(self, value: str | None) -> bool:
        if value is None or not _INTEGER.fullmatch(value) or len(self.values) != 1 or not _is_int64(int(value)):
            return False
        limit = int(self.values[0])
        return int(value) > limit if self.operator is Operator.GREATER_THAN else int(value) < limit

    def __str__(self) -> str:
        if self.operator is Operator.EXISTS:
            return self.key
        if self.operator is Operator.DOES_NOT_EXIST:
            return f"!{self.key}"
        values = ",".join(sorted(self.values))
        if self.operator in _SET:
            return f"{self.key} {self.operator.value} ({values})"
        sign = {Operator.GREATER_THAN: ">", Operator.LESS_THAN: "<"}.get(self.operator, self.operator.value)
        return f"{self.key}{sign}{values}"


def _wrong_values(operator: Operator, values: tuple[str, ...]) -> list[FieldError]:
    shown = list(values)
    if operator in _SET and not values:
        return [invalid("values", shown, "for 'in', 'notin' operators, values set can't be empty")]
    if operator in _ONE and len(values) != 1:
        return [invalid("values", shown, "exact-match compatibility requires one single value")]
    if operator in _NONE and values:
        return [invalid("values", shown, "values set must be empty for exists and does not exist")]
    faults = []
    if operator in _ORDER:
        if len(values) != 1:
            faults.append(invalid("values", shown, "for 'Gt', 'Lt' operators, exactly one value is required"))
        faults += [
            invalid(f"values[{index}]", value, "for 'Gt', 'Lt' operators, the value must be an integer")
            for index, value in enumerate(values)
            if not _INTEGER.fullmatch(value) or not _is_int64(int(value))
        ]
    return faults


def _is_int64(value: int) -> bool:
    return -(2**63) <= value < 2**63


def aggregate(faults: list[FieldError]) -> str:
    """Format one fault as it is, several in brackets, equal ones once (k8s.io/apimachinery pkg/util/errors)."""
    texts = list(dict.fromkeys(map(str, faults)))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
