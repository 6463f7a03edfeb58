"""Selectors: parsed from text or from a LabelSelector, matched against labels or fields, printed again.

Source: k8s.io/apimachinery pkg/labels/selector.go and pkg/fields/selector.go; same grammar, errors and order.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import msgspec

from kubeloop.meta.label_requirement import Operator, Requirement, parse_requirements
from kubeloop.meta.model import Model

# The LabelSelector in objects' specs. None selects nothing, an empty one everything.
#
# Source: k8s.io/apimachinery pkg/apis/meta/v1/types.go (LabelSelector).


class LabelSelectorRequirement(Model):
    """A requirement on one label. ``operator`` is In, NotIn, Exists or DoesNotExist; the last two take no values.

    >>> requirement = LabelSelectorRequirement(key="tier", operator="In", values=["front", "back"])
    >>> str(selector_from(LabelSelector(match_expressions=[requirement])))
    'tier in (back,front)'

    https://kubernetes.io/docs/reference/generated/kubernetes-api/v1.36/#labelselectorrequirement-v1-meta
    """

    key: str = ""
    """Wire name ``key``, required. The label that is compared."""
    operator: str = ""
    """Wire name ``operator``, required. One of ``In``, ``NotIn``, ``Exists``, ``DoesNotExist``."""
    values: list[str] = msgspec.field(default_factory=list)
    """Wire name ``values``, optional; empty if absent. The values of ``In`` and ``NotIn``, at least one; empty for the other
    operators."""


class LabelSelector(Model):
    """Selects labels: all of ``match_labels`` and of ``match_expressions`` must be met.

    >>> selector = LabelSelector(match_labels={"app": "web"})
    >>> selector_from(selector).matches({"app": "web", "tier": "front"})
    True

    https://kubernetes.io/docs/reference/generated/kubernetes-api/v1.36/#labelselector-v1-meta
    """

    match_labels: dict[str, str] = msgspec.field(default_factory=dict)
    """Wire name ``matchLabels``, optional; empty if absent. Labels with exactly these values."""
    match_expressions: list[LabelSelectorRequirement] = msgspec.field(default_factory=list)
    """Wire name ``matchExpressions``, optional; empty if absent. Requirements on labels, all of which must hold."""


_OPERATORS = {"In": Operator.IN, "NotIn": Operator.NOT_IN, "Exists": Operator.EXISTS, "DoesNotExist": Operator.DOES_NOT_EXIST}


class Selector(msgspec.Struct, frozen=True):
    """Selects labels: all requirements must hold; none select everything. ``nothing`` selects nothing, whatever the requirements.

    >>> selector = parse_label_selector("app=web,tier!=test")
    >>> selector.matches({"app": "web"})
    True

    Immutable and hashable: equal selectors share an informer. Requirements are sorted by key.
    """

    requirements: tuple[Requirement, ...] = ()
    nothing: bool = False

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        """Return whether the labels meet all requirements. None counts as no labels."""
        if self.nothing:
            return False
        present = labels or {}
        for requirement in self.requirements:  # noqa: SIM110 - a generator takes as long as the comparison, for each object of a list
            if not requirement.matches(present):
                return False
        return True

    @property
    def everything(self) -> bool:
        return not self.nothing and not self.requirements

    def exact_value(self, key: str) -> str | None:
        """Return the only value that ``key`` may have, or None if the selector allows several."""
        for requirement in self.requirements:
            if requirement.key == key:
                pins = requirement.operator in (Operator.EQUALS, Operator.DOUBLE_EQUALS, Operator.IN) and len(requirement.values) == 1
                return requirement.values[0] if pins else None
        return None

    def __str__(self) -> str:
        """Return the ``labelSelector`` parameter; empty for everything. It leaves out ``nothing``, which no text can express."""
        return ",".join(map(str, self.requirements))


EVERYTHING = Selector()
NOTHING = Selector(nothing=True)


def parse_label_selector(text: str) -> Selector:
    """Parse ``app=web,tier in (a,b),!old``. Empty text selects everything.

    Raises:
        ValueError: The text is malformed; the message is Kubernetes'.
    """
    return Selector(_sorted(parse_requirements(text)))


def selector_from(source: LabelSelector | Mapping[str, Any] | None) -> Selector:
    """Convert a LabelSelector, typed or as a tree: None selects nothing, an empty one everything.

    Raises:
        ValueError: An operator is unknown, or a requirement is invalid; the message is Kubernetes'.
    """
    if source is None:
        return NOTHING
    if not isinstance(source, LabelSelector):
        try:
            source = msgspec.convert({key: value for key, value in source.items() if value is not None}, LabelSelector)
        except msgspec.ValidationError as error:
            raise ValueError(f"not a label selector: {error}") from None
    requirements = [Requirement.checked(key, Operator.EQUALS, (value,)) for key, value in source.match_labels.items()]
    for expression in source.match_expressions:
        operator = _OPERATORS.get(expression.operator)
        if operator is None:
            raise ValueError(f'"{expression.operator}" is not a valid label selector operator')
        requirements.append(Requirement.checked(expression.key, operator, tuple(expression.values)))
    return Selector(_sorted(requirements))


def selector_from_labels(labels: Mapping[str, str] | None) -> Selector:
    """Return a selector of exactly these labels (as a Service has); no labels select everything. The values are not checked."""
    return Selector(_sorted(Requirement(key, Operator.EQUALS, (value,)) for key, value in (labels or {}).items()))


def _sorted(requirements: Iterable[Requirement]) -> tuple[Requirement, ...]:
    return tuple(sorted(requirements, key=lambda requirement: requirement.key))


class FieldOperator(enum.Enum):
    EQUALS = "="
    NOT_EQUALS = "!="


class FieldTerm(msgspec.Struct, frozen=True):
    """One comparison of a field selector; ``field`` is a path in wire names.

    >>> parse_field_selector("status.phase!=Running").terms[0].field
    'status.phase'
    """

    field: str
    operator: FieldOperator
    value: str

    def matches(self, fields: Mapping[str, str]) -> bool:
        """Return whether the fields meet the comparison. A missing field counts as empty text."""
        return (fields.get(self.field, "") == self.value) is (self.operator is FieldOperator.EQUALS)

    def __str__(self) -> str:
        return f"{self.field}{self.operator.value}{escape_field_value(self.value)}"


FieldTransform: TypeAlias = Callable[[str, str], tuple[str, str]]
"""Converts field and value of a term to those to match; two empty texts drop the term. Raises ValueError for an unknown field."""


class FieldSelector(msgspec.Struct, frozen=True):
    """Selects by fields: all terms must hold; none select everything.

    >>> parse_field_selector("spec.nodeName=node-7").matches({"spec.nodeName": "node-7"})
    True
    """

    terms: tuple[FieldTerm, ...] = ()

    def matches(self, fields: Mapping[str, str]) -> bool:
        return all(term.matches(fields) for term in self.terms)

    def transformed(self, transform: FieldTransform) -> FieldSelector:
        """Return a selector with each term converted by ``transform``, such as to the field names that a server uses internally.

        Raises:
            ValueError: ``transform`` refused a term.
        """
        changed = ((transform(term.field, term.value), term.operator) for term in self.terms)
        return FieldSelector(tuple(FieldTerm(field, operator, value) for (field, value), operator in changed if field or value))

    def exact_value(self, field: str) -> str | None:
        """Return the value that ``field`` must have, or None if the selector allows several."""
        return next((term.value for term in self.terms if term.field == field and term.operator is FieldOperator.EQUALS), None)

    @property
    def everything(self) -> bool:
        return not self.terms

    def __str__(self) -> str:
        return ",".join(map(str, self.terms))


def parse_field_selector(text: str) -> FieldSelector:
    """Parse ``metadata.name=web-0,status.phase!=Running``; ``\\,``, ``\\=`` and ``\\\\`` are escapes in values.

    Raises:
        ValueError: The text is malformed; the message is Kubernetes'.
    """
    terms = []
    for part in sorted(_split_terms(text)):
        if not part:
            continue
        at = next((index for index in range(len(part)) if part.startswith(("!=", "="), index)), None)
        if at is None:
            raise ValueError(f"invalid selector: '{text}'; can't understand '{part}'")
        sign = "!=" if part[at] == "!" else "==" if part.startswith("==", at) else "="
        operator = FieldOperator.NOT_EQUALS if sign == "!=" else FieldOperator.EQUALS
        terms.append(FieldTerm(part[:at], operator, _unescape(part[at + len(sign) :])))
    return FieldSelector(tuple(terms))


def escape_field_value(value: str) -> str:
    return value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")


def _split_terms(text: str) -> list[str]:
    """Split at commas, except those after a backslash."""
    terms, start, escaped = [], 0, False
    for index, character in enumerate(text):
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif character == ",":
            terms.append(text[start:index])
            start = index + 1
    return [*terms, text[start:]]


def _unescape(value: str) -> str:
    result: list[str] = []
    escaped = False
    for character in value:
        if escaped:
            if character not in "\\,=":
                raise ValueError(f"invalid field selector: invalid escape sequence: \\{character}")
            result.append(character)
            escaped = False
        elif character == "\\":
            escaped = True
        elif character in ",=":
            # Upstream prints the rune as a number here.
            raise ValueError(f"invalid field selector: unescaped character in value: {ord(character)}")
        else:
            result.append(character)
    if escaped:
        raise ValueError("invalid field selector: invalid escape sequence: \\")
    return "".join(result)
