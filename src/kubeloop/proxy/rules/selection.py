"""The rules for one request, and the one function that rewrites an object in any answer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from functools import cached_property
from typing import Any, Final

import msgspec

from kubeloop.proxy.rules.actions import DropObject
from kubeloop.proxy.rules.callables import PythonCallable
from kubeloop.proxy.rules.context import HeadMetadata, RewriteContext
from kubeloop.proxy.rules.criteria import ObjectCriteria
from kubeloop.proxy.rules.errors import ActionFailed, RuleFailed
from kubeloop.proxy.rules.object_paths import overlaps
from kubeloop.proxy.rules.rule import RewriteRule, WritePolicy
from kubeloop.proxy.rules.structure import type_name
from kubeloop.types import JSONObject

_LOG = logging.getLogger("kubeloop.proxy")

#: kubectl stores the whole object here as it was applied.
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
#: Fields that repeat values and names of others; they are removed from each object that a rule changed.
_REPEATING: Final = (("metadata", "managedFields"), ("metadata", "annotations", LAST_APPLIED))
#: Failures on an object. A TypeError comes from metadata of wrong types.
_FAILURES: Final = (ActionFailed, RecursionError, TypeError)
_STRICTNESS: Final[tuple[WritePolicy, ...]] = ("Deny", "Reverse", "Pass")


class Examination(Enum):
    """What the metadata of an object says about it: no rule touches it, a rule hides it, or the whole object is needed."""

    UNTOUCHED = "untouched"
    HIDDEN = "hidden"
    NEEDS_OBJECT = "needs object"


class Rewritten(msgspec.Struct, frozen=True):
    """The result for one object.

    >>> Rewritten(None, ("hide-internal",), changed=True).object is None
    True

    Attributes:
        object: The object for the client; None if a rule hides it. It shares parts with the input and the rules: do not change it.
        rules: Names of the rules that hid or changed it, in order.
        changed: False if the object is the input. True if it is hidden.
    """

    object: JSONObject | None
    rules: tuple[str, ...]
    changed: bool


class _SelectedRule:
    """A rule whose request-level criteria match, with the criteria that are left for objects."""

    __slots__ = ("actions", "condition", "criteria", "drops_first", "is_immutable", "matches", "rule")

    def __init__(self, rule: RewriteRule, criteria: tuple[ObjectCriteria, ...], *, conditional: bool) -> None:
        """Create it.

        Args:
            rule: The rule.
            criteria: Alternatives, of which one must match. Empty: every object matches.
            conditional: Whether the rule's condition is left to be evaluated.
        """
        self.rule = rule
        self.criteria = criteria
        self.condition = rule.condition if conditional else None
        self.actions = rule.actions
        self.drops_first = isinstance(rule.actions[0], DropObject)
        labels_decide = any(each.labels is not None for each in criteria)
        self.is_immutable = not labels_decide and rule.is_synchronous and (self.condition is None or self.condition.is_immutable)
        self.matches: Callable[[str, str, Mapping[str, str] | None], bool] = criteria[0].match if len(criteria) == 1 else self._matches_any

    def _matches_any(self, namespace: str, name: str, labels: Mapping[str, str] | None) -> bool:
        return not self.criteria or any(each.match(namespace, name, labels) for each in self.criteria)

    def applies(self, tree: JSONObject, variables: JSONObject) -> bool:
        """Return whether the rule matches an object as the server has it."""
        if self.criteria:
            metadata = tree.get("metadata") or {}
            if not isinstance(metadata, dict):
                raise ActionFailed(f"metadata is {type_name(metadata)}, expected a mapping")
            labels = metadata.get("labels")
            if not isinstance(labels, dict | None):
                raise ActionFailed(f"metadata.labels is {type_name(labels)}, expected a mapping")
            if not self.matches(metadata.get("namespace") or "", metadata.get("name") or "", labels):
                return False
        return self.condition is None or self.condition.evaluate({**variables, "object": tree})

    def apply(self, tree: JSONObject, context: RewriteContext) -> JSONObject | None:
        """Return the object after all actions, the same object if nothing changes, or None to hide it."""
        result = tree
        for action in self.actions:
            assert not isinstance(action, PythonCallable), "rules with Python callables need rewrite_async"
            changed = action.apply(result, context)
            if changed is None:
                return None
            result = changed
        return result

    async def apply_async(self, tree: JSONObject, context: RewriteContext, argument: Mapping[str, Any]) -> JSONObject | None:
        """Return the same as ``apply``, also for Python callables, whose second argument is ``argument``."""
        result = tree
        for action in self.actions:
            if isinstance(action, PythonCallable):
                changed = await action.apply(result, argument)
            else:
                changed = action.apply(result, context)
            if changed is None:
                return None
            result = changed
        return result


class RuleSelection:
    """The rules of a set that may touch objects in the answer to one request.

    Guarantees:
        An object is rewritten alike wherever it appears; only the object, the request and the rules decide.
        The input is never changed.
        ``examine`` agrees with ``rewrite``: HIDDEN means that it hides the object, UNTOUCHED that it leaves it unchanged.

    Example:
        >>> selection = rules.select(context)
        >>> selection.rewrite({"metadata": {"name": "web-0", "labels": {"tier": "back"}}}).object is None
        True

    Attributes:
        rules: The names of the rules in order.
        writes: What happens to writes, by the strictest rule: Deny, then Reverse, then Pass.
        synchronous: No action is a Python callable, so that ``rewrite`` may be called.
        immutable_visibility: Whether an object is hidden never changes during its life.
        may_hide: Some rule may hide objects.
        may_change: Some rule may change objects.
    """

    def __init__(self, selected: Sequence[_SelectedRule], context: RewriteContext) -> None:
        self._selected = tuple(selected)
        self._context = context
        self._variables: dict[str, Any] = {"request": context.request_values(), "user": context.user_values()}
        self._logged: set[str] = set()
        actions = [action for each in selected for action in each.actions]
        self.rules = tuple(each.rule.name for each in selected)
        self.writes = min((each.rule.writes for each in selected), key=_STRICTNESS.index)
        self.synchronous = all(each.rule.is_synchronous for each in selected)
        self.may_hide = any(action.hides for action in actions)
        self.may_change = any(isinstance(action, PythonCallable) or not action.hides for action in actions)
        self.immutable_visibility = all(each.is_immutable for each in selected if any(action.hides for action in each.actions))
        if (by_labels := self._examination_of_labels()) is not None:
            self.examine = by_labels  # type: ignore[assignment, method-assign]

    @property
    def needs_objects(self) -> bool:
        """Whether ``examine`` returns NEEDS_OBJECT for every object, so that it can be omitted."""
        first = self._selected[0]
        return not (first.criteria or first.condition or first.drops_first)

    @cached_property
    def paths(self) -> tuple[tuple[str, ...], ...] | None:
        """The paths of all fields, besides those of ``HeadMetadata``, that the rules read or change. None: they may read everything."""
        result: list[tuple[str, ...]] = []
        for each in self._selected:
            for action in each.actions:
                paths = None if isinstance(action, PythonCallable) or each.condition is not None else action.paths
                if paths is None:
                    return None
                result += paths
        return tuple(result)

    @cached_property
    def _argument(self) -> Mapping[str, Any]:
        return self._context.callable_argument()

    def policy_of(self, rules: Collection[str]) -> WritePolicy:
        """Return what happens to writes of an object that some of the rules touch: the strictest of their policies.

        Args:
            rules: The names of the rules that touch the object. None: Pass.
        """
        policies = {each.rule.writes for each in self._selected if each.rule.name in rules}
        return next((policy for policy in _STRICTNESS if policy in policies), "Pass")

    def may_change_path(self, *path: str) -> bool:
        """Return whether some action could change the field at a path, something in it, or something around it."""
        if any(action.may_change(path) for each in self._selected for action in each.actions):
            return True
        return self.may_change and any(overlaps(field, path) for field in _REPEATING)

    def examine(self, head: HeadMetadata) -> Examination:
        """Decide by the metadata alone, if it is enough. Errors need the object, because ``rewrite`` reports them."""
        for each in self._selected:
            try:
                if not each.matches(head.namespace, head.name, head.labels):
                    continue
                if each.condition is not None:
                    holds = each.condition.evaluate_head(head, self._variables)
                    if holds is None:
                        return Examination.NEEDS_OBJECT
                    if not holds:
                        continue
            except TypeError:  # a label that is no text
                return Examination.NEEDS_OBJECT
            return Examination.HIDDEN if each.drops_first else Examination.NEEDS_OBJECT
        return Examination.UNTOUCHED

    def _examination_of_labels(self) -> Callable[[HeadMetadata], Examination] | None:
        """Return ``examine`` for one rule that matches by labels alone, which takes a third of the time; None for other selections."""
        (first, *others) = self._selected
        if others or first.condition is not None or len(first.criteria) != 1:
            return None
        (criteria,) = first.criteria
        labels = criteria.labels
        if labels is None or criteria.names is not None or criteria.namespaces is not None:
            return None
        found = Examination.HIDDEN if first.drops_first else Examination.NEEDS_OBJECT

        def examine(head: HeadMetadata) -> Examination:
            try:
                return found if labels(head.labels or {}) else Examination.UNTOUCHED
            except TypeError:  # a label that is no text
                return Examination.NEEDS_OBJECT

        return examine

    def hidden_by(self, head: HeadMetadata) -> str:
        """Return the name of the rule that hides an object, which ``examine`` has found HIDDEN."""
        return next(each.rule.name for each in self._selected if each.matches(head.namespace, head.name, head.labels))

    def rewrite(self, tree: JSONObject) -> Rewritten:
        """Return what the client sees of an object, and the rules that touched it.

        Args:
            tree: The object as the server has it, without a Python type for its kind. It is not changed.

        Returns:
            The object, changed, unchanged or hidden.

        Raises:
            RuleFailed: A rule failed on the object, which must not be shown.
        """
        result = tree
        touched: tuple[str, ...] = ()
        for each in self._selected:
            try:
                if not each.applies(tree, self._variables):
                    continue
                changed = each.apply(result, self._context)
            except _FAILURES as error:
                self._fail(each.rule, error)
                continue
            if changed is None:
                return Rewritten(None, (*touched, each.rule.name), True)
            if changed is not result:
                touched = (*touched, each.rule.name)
                result = changed
        return Rewritten(_without_repetitions(result), touched, True) if touched else Rewritten(tree, (), False)

    async def rewrite_async(self, tree: JSONObject) -> Rewritten:
        """Return the same as ``rewrite``, also for rules with Python callables.

        Args:
            tree: The object as the server has it. It is not changed, and callables get a copy.

        Returns:
            The object, changed, unchanged or hidden.

        Raises:
            RuleFailed: A rule failed on the object, which must not be shown.
        """
        if self.synchronous:
            return self.rewrite(tree)
        result = tree
        touched: tuple[str, ...] = ()
        for each in self._selected:
            try:
                if not each.applies(tree, self._variables):
                    continue
                changed = await each.apply_async(result, self._context, self._argument)
            except _FAILURES as error:
                self._fail(each.rule, error)
                continue
            if changed is None:
                return Rewritten(None, (*touched, each.rule.name), True)
            if changed is not result:
                touched = (*touched, each.rule.name)
                result = changed
        return Rewritten(_without_repetitions(result), touched, True) if touched else Rewritten(tree, (), False)

    def _fail(self, rule: RewriteRule, error: Exception) -> None:
        reason = "the object nests too deeply" if isinstance(error, RecursionError) else str(error)
        if not rule.passes_errors:
            raise RuleFailed(rule.name, reason) from error
        # A list of a thousand objects logs a rule once, not a thousand times.
        level = logging.DEBUG if rule.name in self._logged else logging.WARNING
        self._logged.add(rule.name)
        _LOG.log(level, "rule %s discarded its changes of an object (onError: Pass): %s", rule.name, reason)


def select_rules(rules: Sequence[RewriteRule], context: RewriteContext) -> RuleSelection | None:
    """Return the rules for the answer to a request, or None if no rule can touch it."""
    selected = [found for rule in rules if (found := _select(rule, context)) is not None]
    return RuleSelection(selected, context) if selected else None


def _select(rule: RewriteRule, context: RewriteContext) -> _SelectedRule | None:
    criteria = [found for entry in rule.match if (found := entry.select(context)) is not None]
    if not criteria:
        return None
    conditional = rule.condition is not None
    if rule.condition is not None and not rule.condition.uses_object:
        # The request alone decides. A failure is that of every object, because there is no answer yet that could report it.
        try:
            if not rule.condition.evaluate({"request": context.request_values(), "user": context.user_values()}):
                return None
            conditional = False
        except ActionFailed:
            pass
    left = () if any(each.everything for each in criteria) else tuple(criteria)
    return _SelectedRule(rule, left, conditional=conditional)


def _without_repetitions(tree: JSONObject) -> JSONObject:
    """Return the object without the fields that repeat values and names which a rule may have hidden."""
    metadata = tree.get("metadata")
    if not isinstance(metadata, dict):
        return tree
    annotations = metadata.get("annotations")
    changed = metadata
    if isinstance(annotations, dict) and LAST_APPLIED in annotations:
        changed = {**metadata, "annotations": {key: value for key, value in annotations.items() if key != LAST_APPLIED}}
    if "managedFields" in changed:
        changed = {key: value for key, value in changed.items() if key != "managedFields"}
    return tree if changed is metadata else {**tree, "metadata": changed}
