"""Checks the selectors of callers and converts them to the text of a URL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from kubeloop.meta import FieldSelector, LabelSelector, Selector, parse_field_selector, parse_label_selector, selector_from
from kubeloop.meta.label_requirement import Operator, Requirement
from kubeloop.meta.selectors import escape_field_value
from kubeloop.meta.type_checks import described

Labels: TypeAlias = str | Mapping[str, str] | Selector | LabelSelector
"""A label selector: a string as in kubectl (``app=web,tier!=db``), a mapping of required labels, or a parsed selector."""

Fields: TypeAlias = str | Mapping[str, str] | FieldSelector
"""A field selector: a string as in kubectl (``spec.nodeName=n1``), a mapping of paths to required values, or a parsed selector."""


def label_text(labels: Labels | None, argument: str = "label_selector=") -> str | None:
    """Return a label selector as text, or None if it selects everything. ``argument`` names the argument in errors.

    Raises:
        ValueError: It is malformed (in Kubernetes' words), a pair is not a label, or it selects nothing: a URL cannot express that, and
            without a selector the request would return everything.
        TypeError: It is not a selector.
    """
    if labels is None:
        return None
    try:
        if isinstance(labels, str):
            return None if parse_label_selector(labels).everything else labels
        if isinstance(labels, Mapping):
            # Checked, because a value with a comma would become two requirements.
            pairs = _pairs(labels, argument, '"app=web,tier!=db" or {"app": "web"}')
            return ",".join(str(Requirement.checked(key, Operator.EQUALS, (value,))) for key, value in pairs) or None
        if isinstance(labels, LabelSelector):
            labels = selector_from(labels)
    except ValueError as error:
        raise ValueError(f"{argument}{_shown(labels)}: {error}") from None
    if not isinstance(labels, Selector):
        raise TypeError(f'{argument}{described(labels)} is not a label selector; give one such as "app=web,tier!=db", or {{"app": "web"}}')
    if labels.nothing:
        raise ValueError(f"{argument.rstrip('= ')}: this label selector selects nothing, which a request cannot express; do not send one")
    return str(labels) or None


def field_text(fields: Fields | None, argument: str = "field_selector=") -> str | None:
    """Return a field selector as text, or None if it selects everything. ``argument`` names the argument in errors.

    Raises:
        ValueError: It is malformed, in Kubernetes' words. TypeError: it is not a selector.
    """
    if fields is None:
        return None
    if isinstance(fields, str):
        try:
            return None if parse_field_selector(fields).everything else fields
        except ValueError as error:
            raise ValueError(f"{argument}{_shown(fields)}: {error}") from None
    if isinstance(fields, Mapping):
        pairs = _pairs(fields, argument, '"spec.nodeName=n1" or {"spec.nodeName": "n1"}')
        return ",".join(f"{path}={escape_field_value(value)}" for path, value in pairs) or None
    if not isinstance(fields, FieldSelector):
        raise TypeError(
            f'{argument}{described(fields)} is not a field selector; give one such as "spec.nodeName=n1", or {{"spec.nodeName": "n1"}}'
        )
    return str(fields) or None


def _shown(selector: object) -> str:
    """Return a text unchanged, because server logs contain it in the URL anyway; return only the type of other values."""
    return repr(selector) if isinstance(selector, str) else described(selector)


def _pairs(selector: Mapping[Any, Any], argument: str, expected: str) -> list[tuple[str, str]]:
    pairs = list(selector.items())
    for key, value in pairs:
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"{argument}{described(selector)}: {described(key)} and {described(value)} must be text; give {expected}")
    return pairs
