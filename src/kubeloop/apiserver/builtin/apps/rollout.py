"""Numbers that may be percentages, as rolling updates use them. Source: ValidatePositiveIntOrPercent and kin."""

from __future__ import annotations

from collections.abc import Iterator

from kubeloop.apiserver.validation.formats import each, not_negative
from kubeloop.meta.field_error import FieldError, invalid
from kubeloop.meta.names import percent
from kubeloop.meta.strconv import decimal


def int_or_percent(path: str, value: int | str) -> Iterator[FieldError]:
    if isinstance(value, str):
        yield from each(path, value, percent(value))
    else:
        yield from not_negative(path, value)


def at_most_all(path: str, value: int | str) -> Iterator[FieldError]:
    if isinstance(value, str) and not percent(value) and (decimal(value[:-1]) or 0) > 100:
        yield invalid(path, value, "must not be greater than 100%")


def amount(value: int | str) -> int:
    """The number, or that of a percentage; text that is neither counts as Go's Atoi does: zero."""
    if isinstance(value, int):
        return value
    return decimal(value.removesuffix("%")) or 0
