"""Events about hidden objects are hidden too: an Event names the object that it is about.

Source: Kubernetes API reference, Event in v1 (``involvedObject``) and in events.k8s.io/v1 (``regarding``).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from typing import Any, Final, Literal

from kubeloop.endpoints.access import User
from kubeloop.meta.errors import ApiError
from kubeloop.meta.kinds import GroupVersion
from kubeloop.proxy.resource_names import JSON_ONLY, ResourceNames
from kubeloop.proxy.rules import Examination, HeadMetadata, RewriteContext, Rewritten, RuleFailed, RuleSet
from kubeloop.proxy.selections import SelectedRules
from kubeloop.proxy.upstream import Upstream, object_path, parsed
from kubeloop.timing import Clock
from kubeloop.types import JSONObject

#: Seconds for which the visibility of an object is cached.
_VISIBILITY_AGE: Final = 2.0
#: Number of objects whose last visibility is remembered, for Events that outlive them.
_REMEMBERED: Final = 20_000


def is_events(group: str, resource: str) -> bool:
    """Return whether a resource is Events, which two API groups serve."""
    return resource == "events" and group in ("", "events.k8s.io")


class ObjectVisibility:
    """Finds out whether a user can see an object that another object names.

    Guarantees
        An object that does not exist any more has its last known visibility. If that is unknown, it is hidden.
        The object is read as the proxy's own user; if the API server does not answer, the caller gets the error.
    """

    def __init__(self, upstream: Upstream, clock: Clock) -> None:
        self._upstream = upstream
        self._clock = clock
        self._names = ResourceNames(upstream, clock)
        self._last: OrderedDict[tuple[object, ...], tuple[float, str | None]] = OrderedDict()

    async def hiding_rule(self, rules: RuleSet, user: User, user_agent: str, reference: JSONObject) -> str | None:
        """Return the name of the rule that hides an object from a user, or None.

        Args:
            rules: All rules.
            user: The user.
            user_agent: The user's program.
            reference: An ObjectReference: apiVersion, kind, namespace, name and uid.
        """
        name, namespace = _text(reference, "name"), _text(reference, "namespace")
        try:
            group, version = GroupVersion.parse(_text(reference, "apiVersion") or "v1")
        except ValueError:
            return None  # it names no object
        resource = await self._names.of_kind(group, version, _text(reference, "kind"))
        if not resource or not name:
            return None
        selection = rules.select(RewriteContext(user, "get", group, version, resource, "", namespace, name, user_agent))
        if selection is None or not selection.may_hide:
            return None
        if selection.immutable_visibility:
            head = HeadMetadata(name, namespace)
            found = selection.examine(head)
            if found is not Examination.NEEDS_OBJECT:
                return selection.hidden_by(head) if found is Examination.HIDDEN else None
        key = (rules.digest, selection.rules, user.name, user.groups, group, resource, namespace, name, _text(reference, "uid"))
        known, now = self._last.get(key), self._clock.now()
        if known is not None and known[0] > now:
            return known[1]
        path = object_path(group, version, resource, namespace, name)
        try:
            tree = parsed(await self._upstream.read(path, JSON_ONLY))
        except ApiError as error:
            if error.status.code not in (403, 404):
                raise
            return known[1] if known is not None else selection.rules[0]
        uid = _text(reference, "uid")
        if uid and (tree.get("metadata") or {}).get("uid") != uid:
            return known[1] if known is not None else selection.rules[0]  # another object with the name of the former one
        result = await selection.rewrite_async(tree)
        rule = result.rules[-1] if result.object is None else None
        self._last[key] = now + _VISIBILITY_AGE, rule
        self._last.move_to_end(key)
        if len(self._last) > _REMEMBERED:
            self._last.popitem(last=False)
        return rule


class EventSelection:
    """The rules for Events: their rules, and the rules that hide the objects which Events are about.

    Args:
        own_rules: The rules that match Events. None: none does.
        rules: All rules.
        user: The user.
        user_agent: The user's program.
        visibility: Finds out whether the objects are visible.
    """

    synchronous = False
    immutable_visibility = False
    may_hide = True

    def __init__(self, own_rules: SelectedRules | None, rules: RuleSet, user: User, user_agent: str, visibility: ObjectVisibility) -> None:
        self._own = own_rules
        self._all = rules
        self._user = user
        self._user_agent = user_agent
        self._visibility = visibility
        self.rules: tuple[str, ...] = own_rules.rules if own_rules is not None else ()
        self.writes: Literal["Deny", "Pass", "Reverse"] = own_rules.writes if own_rules is not None else "Pass"
        self.may_change = own_rules is not None and own_rules.may_change

    def policy_of(self, rules: Collection[str]) -> Literal["Deny", "Pass", "Reverse"]:
        """Return the strictest policy of the rules for Events among ``rules``."""
        return self._own.policy_of(rules) if self._own is not None else "Pass"

    def may_change_path(self, *path: str) -> bool:
        """Return whether a rule for Events could change a field."""
        return self._own is not None and self._own.may_change_path(*path)

    def examine(self, head: HeadMetadata) -> Examination:
        """Decide by the metadata whether a rule for Events hides one; the others are needed whole."""
        if self._own is not None and self._own.examine(head) is Examination.HIDDEN:
            return Examination.HIDDEN
        return Examination.NEEDS_OBJECT

    def hidden_by(self, head: HeadMetadata) -> str:
        """Return the name of the rule for Events that hides one."""
        assert self._own is not None
        return self._own.hidden_by(head)

    def rewrite(self, tree: JSONObject) -> Rewritten:
        """Not available: the objects that Events are about must be looked up."""
        raise NotImplementedError("use rewrite_async")

    async def rewrite_async(self, tree: JSONObject) -> Rewritten:
        """Return what the user sees of an Event. It is hidden, if the object that it is about is hidden.

        Raises:
            RuleFailed: A rule failed on the Event or on the object that it is about.
        """
        result = await self._own.rewrite_async(tree) if self._own is not None else Rewritten(tree, (), changed=False)
        if result.object is None:
            return result
        for field in ("involvedObject", "regarding", "related"):
            reference: Any = tree.get(field)
            if not isinstance(reference, dict):
                continue
            try:
                rule = await self._visibility.hiding_rule(self._all, self._user, self._user_agent, reference)
            except ApiError as error:
                raise RuleFailed("for the objects of Events", str(error)) from error
            if rule is not None:
                return Rewritten(None, (*result.rules, rule), changed=True)
        return result


def _text(reference: JSONObject, field: str) -> str:
    value = reference.get(field)
    return value if isinstance(value, str) else ""
