"""The entry: compile an expression for an environment, evaluate it with values. Each environment says which variables there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kubeloop.cel.depth import room_for
from kubeloop.cel.faults import CompileError, EvalError
from kubeloop.cel.types import Type

if TYPE_CHECKING:
    from kubeloop.cel.checker import Checked
    from kubeloop.cel.estimate import SizeOf
    from kubeloop.cel.overloads import Function

#: What one evaluation may cost (k8s.io/apiserver pkg/apis/cel PerCallLimit).
PER_CALL_LIMIT: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Environment:
    """Variables by name, and the fields of the object types that they use by the type's name. ``bindings``: there is ``cel.bind``.

    ``messages`` gives the fields of a type that expressions may construct (``Object{a: 1}``), None for a name that is no such type;
    ``functions`` are those that other environments do not have.
    """

    variables: Mapping[str, Type]
    fields: Mapping[str, Mapping[str, Type]] = field(default_factory=dict)
    bindings: bool = False
    messages: Callable[[str], Mapping[str, Type] | None] | None = None
    functions: Mapping[str, Function] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an evaluation came to: a value, or why there is none; and what it cost, whichever it was."""

    cost: int
    value: Any = None
    error: EvalError | None = None


class Program:
    """A compiled expression.

    Guarantees
        Evaluating never changes the values it is given, and stops with ``CostExceeded`` beyond its limit.
    """

    __slots__ = ("_checked", "_step", "limit")

    def __init__(self, checked: Checked, limit: int = PER_CALL_LIMIT) -> None:
        from kubeloop.cel.evaluation import plan

        self._checked = checked
        with room_for(checked.parsed.source):
            self._step = plan(checked)
        self.limit = limit

    @property
    def result(self) -> Type:
        """The type of the value."""
        return self._checked.result

    def uses(self, variable: str) -> bool:
        return variable in self._checked.references.values()

    def most_cost(self, size_of: SizeOf) -> int:
        """The most that an evaluation can cost; ``size_of`` tells how large the value at a path (``("self", "spec", "@items")``) can be."""
        from kubeloop.cel.estimate import estimate

        with room_for(self._checked.parsed.source):
            return estimate(self._checked, size_of).high

    def run(self, values: Mapping[str, Any], limit: int | None = None) -> Outcome:
        """Evaluate, and say what it cost. ``limit`` lowers or raises what it may cost."""
        from kubeloop.cel.runtime_cost import Meter

        meter = Meter(self.limit if limit is None else limit)
        try:
            value = self._step(dict(values), meter)
        except EvalError as exc:
            return Outcome(meter.cost, error=exc)
        except RecursionError:
            return Outcome(meter.cost, error=EvalError("expression is nested too deeply"))
        return Outcome(meter.cost, value)

    def eval(self, values: Mapping[str, Any]) -> Any:
        """The value.

        Raises:
            EvalError: there is none: ``no such key: a``, ``division by zero`` ...
            CostExceeded: it did more than ``limit`` allows.
        """
        outcome = self.run(values)
        if outcome.error is not None:
            raise outcome.error
        return outcome.value


def compile_expression(expression: str, environment: Environment, limit: int = PER_CALL_LIMIT) -> Program:
    """Parse and type-check an expression.

    Raises:
        CompileError: it cannot be; the text says where and why, as Kubernetes does.
        InstantiationError: it is well-typed, and some constant in it can still never be evaluated.
    """
    # Functions take tens of milliseconds to load, and few servers and proxies ever compile an expression.
    from kubeloop.cel.checker import check
    from kubeloop.cel.constant_checks import check_constants, check_literals
    from kubeloop.cel.parser import parse

    try:
        with room_for(expression):
            checked = check(parse(expression, bindings=environment.bindings), environment)
            check_literals(checked)
            check_constants(checked)
        return Program(checked, limit)
    except RecursionError:
        raise CompileError("ERROR: <input>:-1:0: max recursion depth exceeded") from None
