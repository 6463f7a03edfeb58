"""One rule: compiled from its document, with every mistake of the document reported by line."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from kubeloop.meta.selectors import Selector, parse_label_selector
from kubeloop.proxy.rules.actions import MapAddresses, RuleAction, parse_action
from kubeloop.proxy.rules.addresses import ADDRESS_FIELDS
from kubeloop.proxy.rules.callables import DEFAULT_SECONDS, PythonCallable, import_callable
from kubeloop.proxy.rules.conditions import Condition
from kubeloop.proxy.rules.criteria import MatchEntry
from kubeloop.proxy.rules.documents import FieldKey, YamlDocument
from kubeloop.proxy.rules.errors import Mistakes
from kubeloop.proxy.rules.schema import rule_schema
from kubeloop.proxy.rules.structure import shown_key, structural_mistakes
from kubeloop.timing import Clock
from kubeloop.types import JSONObject, JSONValue

WritePolicy: TypeAlias = Literal["Deny", "Pass", "Reverse"]
_SCHEMA: Final = rule_schema()


@dataclass(frozen=True, slots=True, eq=False)
class RewriteRule:
    """A compiled rule.

    >>> document = read_documents("metadata: {}", "rules.yaml", mistakes := Mistakes())[0]
    >>> parse_rule(document, 1, mistakes, SystemClock()) is None, mistakes.lines[0]
    (True, 'rules.yaml:1: document 1: apiVersion is missing, such as proxy.kubeloop.dev/v1alpha1')

    Attributes:
        name: Name of the rule, unique in its set.
        match: The entries of ``spec.match``.
        condition: ``spec.when``. None: no condition.
        actions: The actions in order.
        writes: ``spec.writes``.
        passes_errors: Whether a failure discards the changes of the rule, instead of failing the request (``onError: Pass``).
    """

    name: str
    match: tuple[MatchEntry, ...]
    condition: Condition | None
    actions: tuple[RuleAction | PythonCallable, ...]
    writes: WritePolicy
    passes_errors: bool

    @property
    def is_synchronous(self) -> bool:
        return not any(isinstance(action, PythonCallable) for action in self.actions)

    @property
    def uses_users(self) -> bool:
        """Whether the rule depends on who sends the request; a Python callable gets the user."""
        by_condition = self.condition is not None and self.condition.uses_user
        return by_condition or not self.is_synchronous or any(entry.uses_users for entry in self.match)

    def may_change(self, path: Sequence[str]) -> bool:
        """Return whether some action could change the field at a path, something in it, or something around it."""
        return any(action.may_change(path) for action in self.actions)


def parse_rule(document: YamlDocument, number: int, mistakes: Mistakes, clock: Clock) -> RewriteRule | None:
    """Compile the rule of a document.

    Args:
        document: The document.
        number: Its number in the file, for mistakes of a document without a name.
        mistakes: Receives all mistakes of the document.
        clock: Measures the time limits of Python callables.

    Returns:
        The rule, or None if the document has a mistake.
    """
    return _RuleParser(document, number, mistakes, clock).parse()


class _RuleParser:
    """Compiles one document. A part is compiled only if its structure is valid, and a mistake in one part hides none in another."""

    def __init__(self, document: YamlDocument, number: int, mistakes: Mistakes, clock: Clock) -> None:
        self._document = document
        self._mistakes = mistakes
        self._clock = clock
        self._wrong: list[FieldKey] = []
        name = _member(_member(document.value, "metadata"), "name")
        self._subject = f"rule {name}" if isinstance(name, str) and name and len(name) <= 253 else f"document {number}"

    def parse(self) -> RewriteRule | None:
        tree = self._document.value
        for key, text in structural_mistakes(tree, _SCHEMA):
            self._report(key, text)
        for key, value in _infinite_numbers(tree, ()):
            self._report(key, f"the number {value} has no equivalent in JSON")
        spec = _member(tree, "spec")
        if not isinstance(spec, dict):
            return None
        selectors = self._selectors(spec)
        match = [MatchEntry.from_tree(entry, selectors.get(index)) for index, entry in self._valid(spec, "match")]
        condition = self._condition(spec["when"]) if self._is_valid(("spec", "when")) and "when" in spec else None
        actions = [self._action(("spec", "actions", index), action) for index, action in self._valid(spec, "actions")]
        if not self._wrong:
            self._check_addresses(match, actions)
        if self._wrong:
            return None
        return RewriteRule(
            name=tree["metadata"]["name"],
            match=tuple(match),
            condition=condition,
            actions=tuple(action for action in actions if action is not None),
            writes=spec.get("writes", "Deny"),
            passes_errors=spec.get("onError") == "Pass",
        )

    def _valid(self, spec: JSONObject, name: str) -> Iterator[tuple[int, JSONObject]]:
        """Yield the items of a list whose structure is valid, with their indexes."""
        items = spec.get(name)
        for index, item in enumerate(items if isinstance(items, list) else ()):
            if self._is_valid(("spec", name, index)):
                yield index, item

    def _is_valid(self, key: FieldKey) -> bool:
        return not any(wrong[: len(key)] == key for wrong in self._wrong)

    def _selectors(self, spec: JSONObject) -> dict[int, Selector]:
        """Return the label selectors of the entries by index, also of entries with other mistakes."""
        result = {}
        entries = spec.get("match")
        for index, entry in enumerate(entries if isinstance(entries, list) else ()):
            text = _member(entry, "labelSelector")
            if isinstance(text, str):
                try:
                    result[index] = parse_label_selector(text)
                except ValueError as error:
                    key = ("spec", "match", index, "labelSelector")
                    self._report(key, f"expected a label selector, such as tier=back,!public: {error}")
        return result

    def _condition(self, expression: str) -> Condition | None:
        try:
            return Condition(expression)
        except ValueError as error:
            for line in str(error).splitlines():
                self._report(("spec", "when"), line)
            return None

    def _action(self, key: FieldKey, action: JSONObject) -> RuleAction | PythonCallable | None:
        ((name, value),) = action.items()
        if name != "python":
            return parse_action(name, value, lambda below, text: self._report((*key, name, *below), text))
        target, seconds = value["callable"], value.get("timeoutSeconds", DEFAULT_SECONDS)
        try:
            return PythonCallable(target, import_callable(target), float(seconds), self._clock)
        except ValueError as error:
            self._report((*key, name, "callable"), str(error))
            return None

    def _check_addresses(self, match: list[MatchEntry], actions: list[Any]) -> None:
        """Report a mapping of addresses that can never apply, because the rule is for other resources."""
        for index, action in enumerate(actions):
            if isinstance(action, MapAddresses) and not any(
                entry.could_match(group, version, resource, "")
                for entry in match
                for group, resource in ADDRESS_FIELDS
                for version in entry.versions or ("",)
            ):
                names = ", ".join(resource for _, resource in ADDRESS_FIELDS)
                self._report(("spec", "actions", index, "mapAddresses"), f"it never applies; expected one of {names} in spec.match")

    def _report(self, key: FieldKey, text: str) -> None:
        self._wrong.append(key)
        shown = shown_key(key)
        self._mistakes.add(self._document.file, self._document.line(key), f"{self._subject}: {f'{shown}: ' if shown else ''}{text}")


def _member(value: JSONValue, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _infinite_numbers(value: JSONValue, key: FieldKey) -> Iterator[tuple[FieldKey, float]]:
    members: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, member in members:
        if isinstance(member, float):
            if not math.isfinite(member):
                yield (*key, name), member
        elif isinstance(member, dict | list):
            yield from _infinite_numbers(member, (*key, name))
