"""Label selectors and label maps inside specs. Source: k8s.io/apimachinery pkg/apis/meta/v1/validation."""

from __future__ import annotations

from collections.abc import Iterator

from kubeloop.apiserver.validation.formats import each
from kubeloop.meta.field_error import FieldError, forbidden, invalid, required
from kubeloop.meta.names import label_value, qualified_name
from kubeloop.types import JSONObject


def labels(path: str, found: dict[str, str] | None) -> Iterator[FieldError]:
    """Keys, then values, of each pair; both are reported at the map itself."""
    for key, value in (found or {}).items():
        yield from each(path, key, qualified_name(key))
        yield from each(path, value, label_value(value))


def label_selector(path: str, selector: JSONObject | None, *, any_value: bool = False) -> Iterator[FieldError]:
    """``any_value`` leaves the values of expressions unchecked, for objects that were stored with such."""
    if selector is None:
        return
    yield from labels(f"{path}.matchLabels", selector.get("matchLabels"))
    for at, expression in enumerate(selector.get("matchExpressions") or ()):
        yield from requirement(f"{path}.matchExpressions[{at}]", expression, any_value=any_value)


def requirement(path: str, expression: JSONObject, *, any_value: bool = False, any_operator: bool = False) -> Iterator[FieldError]:
    """One expression of a selector; ``any_value`` and ``any_operator`` leave these unchecked."""
    operator, values, key = expression.get("operator", ""), expression.get("values") or [], expression.get("key", "")
    if operator in ("In", "NotIn"):
        if not values:
            yield required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            yield forbidden(f"{path}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
    elif not any_operator:
        yield invalid(f"{path}.operator", operator, "not a valid selector operator")
    yield from each(f"{path}.key", key, qualified_name(key))
    if not any_value:
        for at, value in enumerate(values):
            yield from each(f"{path}.values[{at}]", value, label_value(value))


def matches(selector: JSONObject, found: dict[str, str]) -> bool:
    """Whether a valid LabelSelector selects these labels. An empty one selects everything."""
    if any(found.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_matches(expression, found) for expression in selector.get("matchExpressions") or ())


def _matches(expression: JSONObject, found: dict[str, str]) -> bool:
    key, values = expression.get("key", ""), expression.get("values") or []
    match expression.get("operator"):
        case "In":
            return found.get(key) in values
        case "NotIn":
            return key not in found or found[key] not in values
        case "Exists":
            return key in found
        case _:
            return key not in found


def is_empty(selector: JSONObject) -> bool:
    return not selector.get("matchLabels") and not selector.get("matchExpressions")
