"""Arithmetic on amounts by resource (``{"cpu": 500m}``). Source: k8s.io/apiserver pkg/quota/v1/resources.go."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from kubeloop.meta.quantity import Quantity

#: Resource name -> quantity. Instances are never changed in place.
Amounts = dict[str, Quantity]

ZERO = Quantity(0)
ONE = Quantity(1)


def amounts_of(texts: Mapping[str, str] | None) -> Amounts:
    """Parse a resource list of an object, such as ``status.used`` or ``resources.requests``. None is an empty list."""
    return {name: Quantity(text) for name, text in (texts or {}).items()}


def texts_of(amounts: Amounts) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}


def plus(first: Amounts, second: Amounts) -> Amounts:
    return {**second, **{name: amount + second[name] if name in second else amount for name, amount in first.items()}}


def larger(*several: Amounts) -> Amounts:
    """Return the largest amount of each resource."""
    result: Amounts = {}
    for one in several:
        for name, amount in one.items():
            if name not in result or amount > result[name]:
                result[name] = amount
    return result


def less_at_least_zero(first: Amounts, second: Amounts) -> Amounts:
    """Return ``first`` minus ``second``, with zero instead of negative amounts and for resources that only ``second`` has."""
    found = dict.fromkeys(second, ZERO)
    for name, amount in first.items():
        rest = amount - second[name] if name in second else amount
        found[name] = max(ZERO, rest)
    return found


def masked(amounts: Amounts, names: Collection[str]) -> Amounts:
    return {name: amount for name, amount in amounts.items() if name in names}


def without_zeros(amounts: Amounts) -> Amounts:
    return {name: amount for name, amount in amounts.items() if amount}


def total(several: Iterable[Amounts]) -> Amounts:
    found: Amounts = {}
    for one in several:
        found = plus(found, one)
    return found
