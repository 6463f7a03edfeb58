"""Field and label selectors that an access review asks about: what is wrong with them, and what could be read of them.

Source: k8s.io/kubernetes pkg/apis/authorization/validation, pkg/registry/authorization/util/helpers.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubeloop.apiserver.validation.selectors import requirement
from kubeloop.meta.field_error import FieldError, forbidden, invalid, required
from kubeloop.meta.selectors import FieldOperator, FieldTerm, parse_field_selector, parse_label_selector

JSONObject = dict[str, Any]

_AT = "spec.resourceAttributes"
_FIELD_OPERATORS = {"In": FieldOperator.EQUALS, "NotIn": FieldOperator.NOT_EQUALS}
_LABEL_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


def selector_errors(attributes: JSONObject) -> Iterator[FieldError]:
    """Operators that nobody knows are no fault: newer clients may know them."""
    for name in ("fieldSelector", "labelSelector"):
        selector = attributes.get(name)
        if selector is None:
            continue
        path, raw, terms = f"{_AT}.{name}", selector.get("rawSelector", ""), selector.get("requirements") or []
        if raw and terms:
            yield invalid(f"{path}.rawSelector", raw, "may not specified at the same time as requirements")
        if not raw and not terms:
            yield required(f"{path}.requirements", f"when {path} is specified, requirements or rawSelector is required")
        for at, term in enumerate(terms):
            here = f"{path}.requirements[{at}]"
            yield from _field_errors(here, term) if name == "fieldSelector" else requirement(here, term, any_operator=True)


def _field_errors(path: str, term: JSONObject) -> Iterator[FieldError]:
    operator, values = term.get("operator", ""), term.get("values") or []
    if not term.get("key"):
        yield required(f"{path}.key", "must be specified")
    if operator in ("In", "NotIn") and not values:
        yield required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    if operator in ("Exists", "DoesNotExist") and values:
        yield forbidden(f"{path}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")


def field_terms(selector: JSONObject) -> tuple[tuple[FieldTerm, ...], str | None]:
    """The terms that could be read; and, if there are others, ``partially `` when some could, else empty text."""
    if selector.get("rawSelector"):
        try:
            return parse_field_selector(selector["rawSelector"]).terms, None
        except ValueError:
            return (), ""
    terms, wanted = [], selector.get("requirements") or ()
    for one in wanted:
        operator, values = _FIELD_OPERATORS.get(one.get("operator", "")), one.get("values") or []
        if operator is not None and len(values) == 1:
            terms.append(FieldTerm(one.get("key", ""), operator, values[0]))
    return tuple(terms), _partly(len(terms), len(wanted))


def label_fault(selector: JSONObject) -> str | None:
    """The second of ``field_terms``, for labels."""
    if selector.get("rawSelector"):
        try:
            parse_label_selector(selector["rawSelector"])
        except ValueError:
            return ""
        return None
    wanted = selector.get("requirements") or ()
    return _partly(sum(one.get("operator") in _LABEL_OPERATORS for one in wanted), len(wanted))


def _partly(read: int, wanted: int) -> str | None:
    return None if read == wanted else "partially " if read else ""
