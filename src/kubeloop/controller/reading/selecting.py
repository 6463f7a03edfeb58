"""Whether one label selector asks for no more than another one selects."""

from __future__ import annotations

from kubeloop.meta import Selector
from kubeloop.meta.label_requirement import Operator, Requirement

_ONE_OF = (Operator.EQUALS, Operator.DOUBLE_EQUALS, Operator.IN)
_NONE_OF = (Operator.NOT_EQUALS, Operator.NOT_IN)


def implies(asked: Selector, kept: Selector) -> bool:
    """Whether all that ``asked`` selects is selected by ``kept``, as far as one requirement tells another. False where nobody can tell."""
    return all(any(_implies(one, wanted) for one in asked.requirements) for wanted in kept.requirements)


def _implies(one: Requirement, wanted: Requirement) -> bool:
    if one.key != wanted.key:
        return False
    if wanted.operator is Operator.EXISTS:
        return one.operator not in (*_NONE_OF, Operator.DOES_NOT_EXIST)
    if one.operator in _ONE_OF:
        return all(_accepts(wanted, value) for value in one.values)
    if wanted.operator in _NONE_OF:
        return one.operator is Operator.DOES_NOT_EXIST or (one.operator in _NONE_OF and set(wanted.values) <= set(one.values))
    return (one.operator, one.values) == (wanted.operator, wanted.values)


def _accepts(wanted: Requirement, value: str) -> bool:
    return Selector((wanted,)).matches({wanted.key: value})
