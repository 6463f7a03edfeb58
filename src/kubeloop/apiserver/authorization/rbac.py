"""The RBAC authorizer, and its index of roles and bindings in memory.

Source: k8s.io/kubernetes plugin/pkg/auth/authorizer/rbac, pkg/registry/rbac/validation/rule.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kubeloop.apiserver.authorization.rbac_rules import PathRule, ResourceRule, RoleRules, join_errors, names_of
from kubeloop.endpoints.access import NO_OPINION, Access, Decision, Rules, User
from kubeloop.meta.strconv import go_quoted
from kubeloop.types import JSONObject

GROUP = "rbac.authorization.k8s.io"
#: Prefix of the user names of service accounts.
ACCOUNT = "system:serviceaccount:"


@dataclass(frozen=True, slots=True)
class Subject:
    """A subject of a binding: a group, or a user (service accounts are users). ``text`` is its form in the reasons of decisions."""

    name: str
    text: str
    is_group: bool = False

    def is_about(self, user: User) -> bool:
        """Return whether the subject is the user or one of its groups."""
        return self.name in user.groups if self.is_group else self.name == user.name


class IndexedBinding:
    """A RoleBinding or ClusterRoleBinding with its subjects. ``namespace`` is empty for a ClusterRoleBinding."""

    __slots__ = ("_reason", "name", "namespace", "role_kind", "role_name", "subjects")

    def __init__(self, namespace: str, obj: JSONObject) -> None:
        role = obj.get("roleRef") or {}
        self.namespace = namespace
        self.name: str = obj["metadata"]["name"]
        self.role_kind: str = role.get("kind", "")
        self.role_name: str = role.get("name", "")
        self.subjects = [one for one in (_subject(subject, namespace) for subject in obj.get("subjects") or ()) if one is not None]
        qualified = f"{self.name}/{namespace}" if namespace else self.name
        kind = "RoleBinding" if namespace else "ClusterRoleBinding"
        self._reason = f"RBAC: allowed by {kind} {go_quoted(qualified)} of {self.role_kind} {go_quoted(self.role_name)} to "

    def allowed_decision(self, user: User) -> Decision:
        """Return a decision that allows an access of ``user``. Its reason names this binding and the user's subject.

        The caller has checked that the role of the binding allows the access.
        """
        return Decision(True, reason=self._reason + next(one.text for one in self.subjects if one.is_about(user)))


def _subject(subject: JSONObject, namespace: str) -> Subject | None:
    kind, name = subject.get("kind", ""), subject.get("name", "")
    if kind != "ServiceAccount":
        return Subject(name, f"{kind} {go_quoted(name)}", kind == "Group") if kind in ("User", "Group") else None
    home = subject.get("namespace") or namespace
    return Subject(f"{ACCOUNT}{home}:{name}", f"{kind} {go_quoted(f'{name}/{home}')}") if home else None


@dataclass(slots=True)
class _Bindings:
    """The bindings of one namespace, or the ClusterRoleBindings."""

    named: dict[str, IndexedBinding] = field(default_factory=dict)
    of_users: dict[str, list[IndexedBinding]] = field(default_factory=dict)
    of_groups: dict[str, list[IndexedBinding]] = field(default_factory=dict)

    def put(self, name: str, binding: IndexedBinding | None) -> None:
        before = self.named.pop(name, None)
        if before is not None:
            for index, key in self._places(before):
                index[key].remove(before)
                if not index[key]:
                    del index[key]
        if binding is not None:
            self.named[name] = binding
            for index, key in self._places(binding):
                index.setdefault(key, []).append(binding)
                index[key].sort(key=lambda subject_binding: subject_binding.name)

    def _places(self, binding: IndexedBinding) -> list[tuple[dict[str, list[IndexedBinding]], str]]:
        different = dict.fromkeys((one.name, one.is_group) for one in binding.subjects)
        return [(self.of_groups if group else self.of_users, key) for key, group in different]

    def about(self, user: User) -> Iterator[IndexedBinding]:
        """Yield the bindings of a user. A binding may occur twice."""
        yield from self.of_users.get(user.name, ())
        of_groups = self.of_groups
        for group in user.groups:
            if group in of_groups:
                yield from of_groups[group]


class RoleIndex:
    """An index of roles and bindings. The cost of a lookup depends on the number of the user's bindings only."""

    def __init__(self) -> None:
        #: Increases with every change.
        self.revision = 0
        self._bindings: dict[str, _Bindings] = {"": _Bindings()}
        self._roles: dict[tuple[str, str], RoleRules] = {}

    def put_role(self, namespace: str, name: str, obj: JSONObject | None) -> None:
        """Store a Role, or a ClusterRole if ``namespace`` is empty. If ``obj`` is None, remove it."""
        self.revision += 1
        if obj is None:
            self._roles.pop((namespace, name), None)
        else:
            self._roles[namespace, name] = RoleRules(obj.get("rules") or [])

    def put_binding(self, namespace: str, name: str, obj: JSONObject | None) -> None:
        """Store a RoleBinding, or a ClusterRoleBinding if ``namespace`` is empty. If ``obj`` is None, remove it."""
        self.revision += 1
        bindings = self._bindings.setdefault(namespace, _Bindings())
        bindings.put(name, None if obj is None else IndexedBinding(namespace, obj))
        if namespace and not bindings.named:
            del self._bindings[namespace]

    def has_bindings(self, namespace: str) -> bool:
        """Return whether a namespace has RoleBindings."""
        return namespace in self._bindings

    def bindings_in(self, user: User, namespace: str) -> Iterator[IndexedBinding]:
        """Yield the RoleBindings of ``user`` in a namespace; an empty namespace selects ClusterRoleBindings. A binding may occur twice."""
        if namespace in self._bindings:
            yield from self._bindings[namespace].about(user)

    def bindings(self, user: User, namespace: str) -> Iterator[IndexedBinding]:
        """Yield all bindings of ``user`` that apply in ``namespace``. A binding may occur twice."""
        yield from self.bindings_in(user, "")
        if namespace:
            yield from self.bindings_in(user, namespace)

    def role(self, kind: str, name: str, namespace: str) -> RoleRules | None:
        """Return the rules of a Role or ClusterRole, or None."""
        return self._roles.get(("" if kind == "ClusterRole" else namespace, name))


def missing(kind: str, name: str) -> str:
    """Return the error text for a binding whose role does not exist."""
    return f"{kind.lower()}.{GROUP} {go_quoted(name)} not found"


#: Maximum cached (user, namespace) pairs; the least recently used ones are dropped.
_MOST = 2048
#: Maximum characters of name and groups of a cached user, because reviews may name any user.
_LONGEST = 4096
_OF_A_GROUP = 64

_Key = tuple[str, tuple[str, ...], str]


class _Held:
    """The resolved rules of one user in one namespace."""

    __slots__ = ("_by_resource", "_paths", "faults")

    def __init__(self, user: User, index: RoleIndex, bindings: Iterable[IndexedBinding]) -> None:
        self._by_resource: dict[str, list[tuple[ResourceRule, Decision]]] = {}
        self._paths: list[tuple[PathRule, Decision]] = []
        self.faults: list[str] = []
        for binding in dict.fromkeys(bindings):
            role = index.role(binding.role_kind, binding.role_name, binding.namespace)
            if role is None:
                self.faults.append(missing(binding.role_kind, binding.role_name))
                continue
            allowed = binding.allowed_decision(user)
            self._paths += [(rule, allowed) for rule in role.paths]
            for resource, rules in role.by_resource.items():
                self._by_resource.setdefault(resource, []).extend((rule, allowed) for rule in rules)

    def decide(self, access: Access) -> Decision | None:
        if not access.is_resource:
            return next((allowed for rule, allowed in self._paths if rule.allows(access)), None)
        for name in names_of(access):
            for rule, allowed in self._by_resource.get(name, ()):
                if rule.allows(access):
                    return allowed
        return None


class UserRules:
    """A cache of resolved rules per user, limited in users and bytes. A cached decision costs some microseconds."""

    def __init__(self, index: RoleIndex) -> None:
        self._index = index
        self._kept: dict[_Key, _Held] = {}
        self._revision = -1

    def decide(self, access: Access) -> tuple[Decision, list[str]]:
        """Return the decision, and if nothing allows the access, error texts about missing roles."""
        everywhere = self._of(access.user, "")
        result = everywhere.decide(access)
        if result is not None:
            return result, []
        if not access.namespace or not self._index.has_bindings(access.namespace):
            return NO_OPINION, everywhere.faults
        there = self._of(access.user, access.namespace)
        result = there.decide(access)
        return (result, []) if result is not None else (NO_OPINION, everywhere.faults + there.faults)

    def _of(self, user: User, namespace: str) -> _Held:
        stored = self._kept
        if self._revision != self._index.revision:
            stored.clear()
            self._revision = self._index.revision
        key = (user.name, user.groups, namespace)
        held = stored.pop(key, None)
        if held is None:
            held = _Held(user, self._index, self._index.bindings_in(user, namespace))
            if len(user.name) + sum(map(len, user.groups)) + _OF_A_GROUP * len(user.groups) > _LONGEST:
                return held
            if len(stored) >= _MOST:
                del stored[next(iter(stored))]
        stored[key] = held
        return held


class RoleAuthorizer:
    """Allows an access that a role of the user or of one of its groups allows. It never denies."""

    def __init__(self, index: RoleIndex) -> None:
        self.index = index
        self._held = UserRules(index)

    def authorize(self, access: Access) -> Decision:
        decision, faults = self._held.decide(access)
        return Decision(False, reason=f"RBAC: {join_errors(faults)}") if faults else decision

    def rules(self, user: User, namespace: str) -> Rules:
        rules, lost = self.resolve_rules(user, namespace)
        result = Rules(error=join_errors([missing(one.role_kind, one.role_name) for one in lost]))
        for rule in rules:
            if rule.get("resources"):
                names = ("verbs", "apiGroups", "resources", "resourceNames")
                result.resources.append({name: rule[name] for name in names if rule.get(name)})
            if rule.get("nonResourceURLs"):
                result.paths.append({name: rule[name] for name in ("verbs", "nonResourceURLs") if rule.get(name)})
        return result

    def resolve_rules(self, user: User, namespace: str) -> tuple[list[JSONObject], list[IndexedBinding]]:
        """Return the rules of all roles that ``user`` has in ``namespace``, ordered by binding, and the bindings whose role is missing."""
        rules: list[JSONObject] = []
        lost: list[IndexedBinding] = []
        different: dict[int, IndexedBinding] = {id(one): one for one in self.index.bindings(user, namespace)}
        for binding in sorted(different.values(), key=lambda subject_binding: (bool(subject_binding.namespace), subject_binding.name)):
            role = self.index.role(binding.role_kind, binding.role_name, binding.namespace)
            if role is None:
                lost.append(binding)
            else:
                rules += role.source
        return rules, lost

    async def prepare(self, user: User) -> None:
        """Do nothing: all roles are in memory."""
