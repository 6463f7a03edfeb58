"""Evaluates the CEL rules of a custom resource's schema for an object, with Kubernetes' messages, budget and ratcheting.

Source: apiextensions-apiserver schema/cel/validation.go.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from kubeloop.apiserver.crd.compiled_rules import CompiledRule, RuleCompiler
from kubeloop.cel import CostExceeded, EvalError, Program
from kubeloop.cel.conversions import Convert, converter
from kubeloop.cel.declared import DeclaredType, declare
from kubeloop.cel.identifier_escaping import escape
from kubeloop.cel.values import NONE, Optional
from kubeloop.meta.field_error import OMITTED, FieldError, FieldErrorType, duplicate, forbidden, invalid, required
from kubeloop.schema.node import TypeSchema
from kubeloop.schema.structural import ANY_VALUE, NO_OTHER
from kubeloop.schema.validation import same
from kubeloop.types import JSONObject

# Matches each part of the new object with its old counterpart: by field name, and by key in lists of type map.
#
# Errors of unchanged parts are ignored (ratcheting, KEP-4008). Source: k8s.io/apiserver pkg/cel/common/equality.go.


class OldListItems:
    """An index of the old items of a list of type map by their keys. For lists of other types it is empty."""

    def __init__(self, schema: TypeSchema, items: Any) -> None:
        self._keys = schema.list_map_keys if schema.list_type == "map" and isinstance(items, list) else ()
        self._items: dict[str, Any] = {}
        for item in items if self._keys else ():
            if (key := self._key(item)) is not None:
                self._items.setdefault(key, item)

    def get(self, item: Any) -> Any:
        """Return the old item with the same keys, or None if there is none."""
        key = self._key(item)
        return None if key is None else self._items.get(key)

    def _key(self, item: Any) -> str | None:
        if not self._keys or not isinstance(item, dict):
            return None
        values = [item.get(name) for name in self._keys]
        return json.dumps(values) if all(isinstance(one, bool | int | float | str) for one in values) else None


class CorrelatedValue:
    """A new value and its old counterpart."""

    __slots__ = ("_children", "_items", "_same", "old", "schema", "value")

    def __init__(self, value: Any, old: Any, schema: TypeSchema) -> None:
        self.value = value
        self.old = old
        self.schema = schema
        self._children: dict[str | int, CorrelatedValue | None] = {}
        self._items: OldListItems | None = None
        self._same: bool | None = None

    def key(self, name: str) -> CorrelatedValue | None:
        """Return a field with its counterpart, or None if only one side has it or the schema does not define it."""
        if name not in self._children:
            self._children[name] = self._key(name)
        return self._children[name]

    def _key(self, name: str) -> CorrelatedValue | None:
        if not isinstance(self.value, dict) or not isinstance(self.old, dict) or name not in self.value or name not in self.old:
            return None
        below = self.schema.properties.get(name)
        if below is None and self.schema.values not in (ANY_VALUE, NO_OTHER):
            below = self.schema.values
        return None if below is None else CorrelatedValue(self.value[name], self.old[name], below)

    def index(self, number: int) -> CorrelatedValue | None:
        """Return an item with its counterpart, or None if the list is not of type map or no old item has the same keys."""
        if number not in self._children:
            self._children[number] = self._index(number)
        return self._children[number]

    def _index(self, number: int) -> CorrelatedValue | None:
        if not isinstance(self.value, list) or self.schema.items is None:
            return None
        if self._items is None:
            self._items = OldListItems(self.schema, self.old)
        old = self._items.get(self.value[number])
        return None if old is None else CorrelatedValue(self.value[number], old, self.schema.items)

    def unchanged(self) -> bool:
        """Return whether both values are equal. The order of lists of type map does not matter."""
        if self._same is None:
            self._same = self._unchanged()
        return self._same

    def _unchanged(self) -> bool:
        value, old = self.value, self.old
        if value is None or old is None:
            return value is old
        if isinstance(value, list) and isinstance(old, list):
            if len(value) != len(old):
                return False
            if self.schema.list_type != "map":
                return same(old, value)
            return all((one := self.index(number)) is not None and one.unchanged() for number in range(len(value)))
        if isinstance(value, dict) and isinstance(old, dict):
            return len(value) == len(old) and all((one := self.key(name)) is not None and one.unchanged() for name in value)
        return same(old, value)


#: Budget for all rules of one object (RuntimeCELCostBudget).
BUDGET: Final = 10_000_000
_LONGEST_MESSAGE: Final = 5 * 1024
_NOTHING_LEFT: Final = "validation failed due to running out of cost budget, no further validation rules will be run"
#: Types of schema errors after which rules are not evaluated, because they could meet values that the schema excludes.
_BLOCKING: Final = frozenset({
    FieldErrorType.NOT_SUPPORTED, FieldErrorType.REQUIRED, FieldErrorType.TOO_LONG, FieldErrorType.TOO_MANY, FieldErrorType.TYPE_INVALID,
})  # fmt: skip
_NOT_CHECKED: Final = (
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"
)
_NO_FIELD: Final = "<nil>"


class SchemaRules:
    """All rules of a resource's schema. They are compiled when they are first needed."""

    def __init__(self, schema: TypeSchema, *, is_root: bool = True) -> None:
        """Store the schema. ``is_root`` is True for the schema of whole objects, which have metadata."""
        self._schema = schema
        self._is_root = is_root
        self._root: _Node | None = None

    def check(self, obj: JSONObject, old: JSONObject | None, errors: Iterable[FieldError], warnings: list[str]) -> list[FieldError]:
        """Evaluate the rules for an object.

        Args:
            obj: The new object.
            old: The old object; None for a creation.
            errors: Errors of the validation by the schema. Some types of errors prevent the evaluation of the rules.
            warnings: Receives the errors of unchanged parts, which do not count.

        Returns:
            The errors of the rules; or a single error that they were not checked.
        """
        if any(error.type in _BLOCKING for error in errors):
            return [invalid(_NO_FIELD, None, _NOT_CHECKED)]
        run = _Run(warnings)
        ratchet = _Ratchet(CorrelatedValue(obj, old, self._schema)) if old is not None else _Ratchet()
        run.node(self._compiled(), "", obj, old, ratchet)
        return run.errors

    def check_default(self, value: Any, path: str) -> list[FieldError]:
        """Return the errors of rules for a default value. It is checked as an unchanged value first, and then as a new one."""
        for old in (value, None):
            run = _Run([])
            run.node(self._compiled(), path, value, old, _Ratchet())
            if run.errors:
                return run.errors
        return []

    def _compiled(self) -> _Node:
        if self._root is None:
            declared = declare(self._schema, is_root=self._is_root)
            self._root = _build(self._schema, self._schema, declared, is_root=self._is_root) or _Node(self._schema)
        return self._root


@dataclass(slots=True)
class _Node:
    """The compiled rules of one schema node and of the nodes below it."""

    schema: TypeSchema
    rules: list[CompiledRule] = field(default_factory=list)
    convert: Convert | None = None
    items: _Node | None = None
    values: _Node | None = None
    properties: dict[str, _Node] = field(default_factory=dict)
    all_of: list[_Node] = field(default_factory=list)

    @property
    def uses_old(self) -> bool:
        """Whether a rule of this node uses ``oldSelf``."""
        return any(rule.uses_old for rule in self.rules)


def _build(source: TypeSchema, schema: TypeSchema, declared: DeclaredType | None, *, is_root: bool) -> _Node | None:
    """Compile the rules of a node. Return None if neither the node nor a node below it has rules.

    Args:
        source: The schema with the rules: ``schema`` itself, or a part of its allOf.
        schema: The schema of the node.
        declared: CEL type of the node; None if it is not known.
        is_root: The node is a whole object with metadata.
    """
    node = _Node(schema)
    if source.validations and declared is not None:
        compiler = RuleCompiler(schema, declared)
        node.rules = [compiler.compile(rule) for rule in source.validations]
        node.convert = converter(schema, is_root=is_root)
    element = declared.element if declared is not None else None
    if source.items is not None and schema.items is not None:
        node.items = _build(source.items, schema.items, element, is_root=schema.items.embedded_resource)
    if source.values is not None and schema.values is not None:
        node.values = _build(source.values, schema.values, element, is_root=schema.values.embedded_resource)
    for name, below in source.properties.items():
        of = schema.properties.get(name)
        if of is None:
            continue
        identifier = escape(name)
        if identifier is None:
            typed = declare(of, is_root=of.embedded_resource)
        else:
            typed = declared.fields.get(identifier) if declared is not None else None
        if typed is not None and (value := _build(below, of, typed, is_root=of.embedded_resource)) is not None:
            node.properties[name] = value
    for one in source.all_of:
        if (part := _build(one, schema, declared, is_root=is_root)) is not None:
            node.all_of.append(part)
    empty = not (node.rules or node.items or node.values or node.properties or node.all_of)
    return None if empty else node


@dataclass(frozen=True, slots=True)
class _Ratchet:
    """The ratcheting state of a value: whether it equals its old counterpart or, if it has none, that of the nearest enclosing value."""

    current: CorrelatedValue | None = None
    parent: CorrelatedValue | None = None

    def ratcheted(self) -> bool:
        """Return whether the value is unchanged, so that its errors become warnings."""
        of = self.current or self.parent
        return of is not None and of.unchanged()

    def key(self, name: str) -> _Ratchet:
        """Return the state for a field."""
        if self.current is None:
            return self
        if self.parent is None and name in ("apiVersion", "kind"):
            return _Ratchet()  # Both were converted to one version, so changes there are not visible.
        return _Ratchet(self.current.key(name), self.current)

    def index(self, number: int) -> _Ratchet:
        """Return the state for a list item."""
        return self if self.current is None else _Ratchet(self.current.index(number), self.current)

    def within_all_of(self) -> _Ratchet:
        """Return the state for a part of allOf."""
        return _Ratchet(None, self.parent)


class _CostBudgetExceeded(Exception):  # Ends the run; not an error.
    pass


class _Run:
    """One evaluation of all rules for one object."""

    def __init__(self, warnings: list[str]) -> None:
        self.errors: list[FieldError] = []
        self.warnings = warnings
        self.left = BUDGET

    def node(self, node: _Node, path: str, value: Any, old: Any, ratchet: _Ratchet) -> None:
        """Evaluate the rules of a node and of the nodes below it.

        Args:
            node: The compiled rules.
            path: Path of the value.
            value: The new value.
            old: Its old counterpart; None if it has none.
            ratchet: Tells whether the value is unchanged.
        """
        try:
            self._node(node, path, value, old, ratchet)
        except _CostBudgetExceeded:
            return

    def _node(self, node: _Node, path: str, value: Any, old: Any, ratchet: _Ratchet) -> None:
        if value is None:
            return
        if node.rules:
            self._rules(node, path, value, old, ratchet)
        for part in node.all_of:
            self._node(part, path, value, old, ratchet.within_all_of())
        if isinstance(value, list):
            if node.items is not None:
                before = OldListItems(node.schema, old)
                for index, item in enumerate(value):
                    self._node(node.items, f"{path}[{index}]", item, before.get(item), ratchet.index(index))
        elif isinstance(value, dict):
            known = old if isinstance(old, dict) else {}
            if node.values is not None:
                for name, one in value.items():
                    self._node(node.values, f"{path}[{name}]", one, known.get(name), ratchet.key(name))
            for name, below in node.properties.items():
                if name in value:
                    position = f"{path}.{name}" if path else name
                    self._node(below, position, value[name], known.get(name), ratchet.key(name))

    def _fail(self, path: str, value: Any, detail: str) -> None:
        self.errors.append(invalid(path or _NO_FIELD, value, detail))

    def _spend(self, path: str, kind: str, cost: int) -> None:
        if cost > self.left:
            self._fail(path, kind, _NOTHING_LEFT)
            raise _CostBudgetExceeded
        self.left -= cost

    def _rules(self, node: _Node, path: str, value: Any, old: Any, ratchet: _Ratchet) -> None:
        kind = node.schema.type
        if self.left <= 0:
            self._fail(path, kind, _NOTHING_LEFT)
            raise _CostBudgetExceeded
        try:
            seen = value if node.convert is None else node.convert(value)
            before = None if old is None or not node.uses_old else old if node.convert is None else node.convert(old)
        except EvalError as exc:
            self.errors.extend(invalid(path or _NO_FIELD, kind, f"{exc} evaluating rule: {rule.shown}") for rule in node.rules)
            return
        for rule in node.rules:
            if rule.error:
                self._fail(path, kind, f"rule compile error: {rule.error}")
            elif rule.program is not None and not (rule.uses_old and old is None and not rule.optional_old):
                values: JSONObject = {"self": seen}
                if rule.optional_old:
                    values["oldSelf"] = NONE if old is None else Optional(before)
                elif old is not None:
                    values["oldSelf"] = before
                if not self._holds(rule, rule.program, path, kind, values):
                    self._broken(rule, node, path, value, values, ratchet)

    def _holds(self, rule: CompiledRule, program: Program, path: str, kind: str, values: JSONObject) -> bool:
        """Evaluate one rule. Return True if it holds, and also if its evaluation fails, which is reported separately.

        Args:
            rule: The rule.
            program: Its compiled expression.
            path: Path of the value.
            kind: Type of the value, for messages.
            values: The CEL variables.
        """
        outcome = program.run(values)
        self._spend(path, kind, outcome.cost)
        error = outcome.error
        if error is None:
            return outcome.value is not False
        if isinstance(error, CostExceeded):
            self._fail(
                path, kind, f"'{error}': no further validation rules will be run due to call cost exceeds limit for rule: {rule.shown}"
            )
            raise _CostBudgetExceeded
        if str(error).startswith("no such overload"):
            why = "call arguments did not match a supported operator, function or macro signature for rule"
            self._fail(path, kind, f"'{error}': {why}: {rule.shown}")
        else:
            self._fail(path, kind, f"{error} evaluating rule: {rule.shown}")
        return True

    def _broken(self, rule: CompiledRule, node: _Node, path: str, value: Any, values: JSONObject, ratchet: _Ratchet) -> None:
        index = path
        if rule.field:
            index = f"{path}.{rule.field}" if path else rule.field
        excused = not rule.uses_old and ratchet.ratcheted()
        detail = rule.rule.get("message", "").strip() or f"failed rule: {rule.shown}"
        if rule.message is not None:
            text, stop = self._message(rule.message, rule, values)
            if stop:
                self._add(invalid(index or _NO_FIELD, node.schema.type, text), excused=excused)
                raise _CostBudgetExceeded
            detail = text or detail
        shown = OMITTED if node.schema.type in ("object", "array") else value
        self._add(_by_reason(rule.rule.get("reason"), index or _NO_FIELD, shown, detail), excused=excused)

    def _add(self, fault: FieldError, *, excused: bool) -> None:
        if excused:
            self.warnings.append(str(fault))
        else:
            self.errors.append(fault)

    def _message(self, program: Program, rule: CompiledRule, values: JSONObject) -> tuple[str, bool]:
        """Return the text of a messageExpression (empty if it is unusable), and whether the evaluation must stop."""
        outcome = program.run(values)
        if outcome.cost > self.left:
            return "messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run", True
        if isinstance(outcome.error, CostExceeded):
            quoted = msgspec.json.encode(rule.rule.get("messageExpression")).decode()
            return f"no further validation rules will be run due to call cost exceeds limit for messageExpression: {quoted}", True
        self.left -= outcome.cost
        text = outcome.value.strip() if outcome.error is None and isinstance(outcome.value, str) else ""
        usable = len(text.encode()) <= _LONGEST_MESSAGE and "\n" not in text
        return (text if usable else ""), False


def _by_reason(reason: str | None, path: str, value: Any, detail: str) -> FieldError:
    match reason:
        case "FieldValueForbidden":
            return forbidden(path, detail)
        case "FieldValueRequired":
            return required(path, detail)
        case "FieldValueDuplicate":
            return duplicate(path, value)
        case _:
            return invalid(path, value, detail)
