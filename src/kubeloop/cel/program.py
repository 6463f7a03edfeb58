"""The entry point: compiles an expression for an environment of variables and evaluates it with values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kubeloop.cel.faults import CompileError, EvalError
from kubeloop.cel.syntax import extended_recursion_limit
from kubeloop.cel.types import Type

if TYPE_CHECKING:
    from kubeloop.cel.checker import Checked
    from kubeloop.cel.estimate import SizeOf
    from kubeloop.cel.overloads import Function

#: Cost limit of one evaluation (k8s.io/apiserver pkg/apis/cel PerCallLimit).
PER_CALL_LIMIT: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Environment:
    """The declarations for an expression: variables by name, and fields of object types by type name.

    >>> from kubeloop.cel.types import INT
    >>> compile_expression("size > 1", Environment({"size": INT})).eval({"size": 3})
    True

    ``bindings`` makes ``cel.bind`` available. ``messages`` returns the fields of a type that expressions may construct
    (``Object{a: 1}``), or None for an unknown type. ``functions`` are additional functions of this environment.
    """

    variables: Mapping[str, Type]
    fields: Mapping[str, Mapping[str, Type]] = field(default_factory=dict)
    bindings: bool = False
    messages: Callable[[str], Mapping[str, Type] | None] | None = None
    functions: Mapping[str, Function] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """The result of an evaluation: a value or an error, and the cost in both cases.

    >>> result = compile_expression("1 / 0", Environment({})).run({})
    >>> str(result.error)
    'division by zero'
    """

    cost: int
    value: Any = None
    error: EvalError | None = None


class Program:
    """A compiled expression.

    >>> program = compile_expression("'web'.startsWith('w')", Environment({}))
    >>> program.eval({})
    True

    Guarantees
        Evaluation never changes the input values, and stops with ``CostExceeded`` beyond its limit.
    """

    __slots__ = ("_checked", "_step", "limit")

    def __init__(self, checked: Checked, limit: int = PER_CALL_LIMIT) -> None:
        from kubeloop.cel.evaluation import plan

        self._checked = checked
        with extended_recursion_limit(checked.parsed.source):
            self._step = plan(checked)
        self.limit = limit

    @property
    def result(self) -> Type:
        """The type of the expression's value."""
        return self._checked.result

    def uses(self, variable: str) -> bool:
        return variable in self._checked.references.values()

    def most_cost(self, size_of: SizeOf) -> int:
        """Return the maximum cost of an evaluation; ``size_of`` returns the size at a path (``("self", "spec", "@items")``)."""
        from kubeloop.cel.estimate import estimate

        with extended_recursion_limit(self._checked.parsed.source):
            return estimate(self._checked, size_of).high

    def run(self, values: Mapping[str, Any], limit: int | None = None) -> EvaluationResult:
        """Evaluate the expression and return its value or error with the cost. ``limit`` replaces the program's cost limit."""
        from kubeloop.cel.runtime_cost import Meter

        meter = Meter(self.limit if limit is None else limit)
        try:
            value = self._step(dict(values), meter)
        except EvalError as exc:
            return EvaluationResult(meter.cost, error=exc)
        except RecursionError:
            return EvaluationResult(meter.cost, error=EvalError("expression is nested too deeply"))
        return EvaluationResult(meter.cost, value)

    def eval(self, values: Mapping[str, Any]) -> Any:
        """Evaluate the expression and return its value.

        Raises:
            EvalError: The evaluation failed: ``no such key: a``, ``division by zero`` ...
            CostExceeded: The evaluation exceeded ``limit``.
        """
        outcome = self.run(values)
        if outcome.error is not None:
            raise outcome.error
        return outcome.value


def compile_expression(expression: str, environment: Environment, limit: int = PER_CALL_LIMIT) -> Program:
    """Parse and type-check an expression.

    Raises:
        CompileError: The expression does not parse or type-check; the message gives position and reason, as in Kubernetes.
        InstantiationError: The expression is well-typed, but a constant in it always fails.
    """
    # Functions take tens of milliseconds to load, and few servers and proxies ever compile an expression.
    from kubeloop.cel.checker import check
    from kubeloop.cel.constant_checks import check_constants, check_literals
    from kubeloop.cel.parser import parse

    try:
        with extended_recursion_limit(expression):
            checked = check(parse(expression, bindings=environment.bindings), environment)
            check_literals(checked)
            check_constants(checked)
        return Program(checked, limit)
    except RecursionError:
        raise CompileError("ERROR: <input>:-1:0: max recursion depth exceeded") from None
