"""Compiles one rule of ``x-kubernetes-validations``: its expression, its message expression, and the estimated cost of both.

Source: apiextensions-apiserver schema/cel/compilation.go (also of the messages).
"""

from __future__ import annotations

from dataclasses import dataclass

from kubeloop.cel import CompileError, Environment, InstantiationError, Program, compile_expression
from kubeloop.cel.declared import DeclaredType, environment
from kubeloop.schema.field_paths import FieldPathError, normalise
from kubeloop.schema.node import TypeSchema
from kubeloop.types import JSONObject

_NOT_BOOL = "cel expression must evaluate to a bool"
_NOT_STRING = "messageExpression must evaluate to a string"


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """A compiled rule. ``program`` is None if the rule is empty, or if ``error`` says why it does not compile."""

    rule: JSONObject
    program: Program | None = None
    error: str = ""
    uses_old: bool = False
    most_cost: int = 0
    message: Program | None = None
    message_error: str = ""
    message_cost: int = 0
    #: ``fieldPath`` in the form of field errors.
    field: str = ""

    @property
    def optional_old(self) -> bool:
        """Whether the rule runs also without an old value (``optionalOldSelf``)."""
        return bool(self.rule.get("optionalOldSelf"))

    @property
    def shown(self) -> str:
        """The rule as messages name it."""
        return str(self.rule.get("message") or self.rule.get("rule") or "").strip()


class RuleCompiler:
    """Compiles the rules of one schema node."""

    def __init__(self, schema: TypeSchema, declared: DeclaredType) -> None:
        self._schema = schema
        self._declared = declared
        self._environments: dict[bool, Environment] = {}

    def compile(self, rule: JSONObject) -> CompiledRule:
        """Compile one rule of the node."""
        text = rule.get("rule") or ""
        if not text.strip():
            return CompiledRule(rule)
        environment = self._environment(optional_old=bool(rule.get("optionalOldSelf")))
        try:
            program = compile_expression(text, environment)
        except InstantiationError as exc:
            return CompiledRule(rule, error=_NOT_BOOL if exc.result != "bool" else f"program instantiation failed: {exc}")
        except CompileError as exc:
            return CompiledRule(rule, error=f"compilation failed: {exc}")
        if program.result.kind != "bool":
            return CompiledRule(rule, error=_NOT_BOOL)
        cost = program.most_cost(self._declared.size_of)
        value = program, "", program.uses("oldSelf"), cost
        message, message_error = self._message(rule.get("messageExpression") or "", environment)
        message_cost = message.most_cost(self._declared.size_of) if message is not None else 0
        return CompiledRule(rule, *value, message, message_error, message_cost, "" if message_error else self._field(rule))

    def _environment(self, *, optional_old: bool) -> Environment:
        if optional_old not in self._environments:
            self._environments[optional_old] = environment(self._declared, optional_old=optional_old)
        return self._environments[optional_old]

    def _message(self, text: str, environment: Environment) -> tuple[Program | None, str]:
        if not text:
            return None, ""
        try:
            program = compile_expression(text, environment)
        except InstantiationError as exc:
            return None, _NOT_STRING if exc.result != "string" else f"messageExpression instantiation failed: {exc}"
        except CompileError as exc:
            return None, f"messageExpression compilation failed: {exc}"
        if program.result.kind != "string":
            return None, _NOT_STRING
        return program, ""

    def _field(self, rule: JSONObject) -> str:
        path = rule.get("fieldPath") or ""
        if not path:
            return ""
        try:
            return normalise(path, self._schema)
        except FieldPathError:
            return ""
