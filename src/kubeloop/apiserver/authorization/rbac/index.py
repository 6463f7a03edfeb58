"""All roles and bindings in memory, found by whom they are about. Knows nothing of storage: whoever fills it does (``keeping``)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kubeloop.apiserver.authorization.rbac.rules import RoleRules
from kubeloop.endpoints.access import Decision, User
from kubeloop.meta.go_quote import go_quoted
from kubeloop.types import JSONObject

GROUP = "rbac.authorization.k8s.io"
#: Where service accounts' user names begin.
ACCOUNT = "system:serviceaccount:"


@dataclass(frozen=True, slots=True)
class Subject:
    """Whom a binding names: a group, or a user (service accounts are users). ``text`` is how reasons show it."""

    name: str
    text: str
    is_group: bool = False

    def is_about(self, user: User) -> bool:
        return self.name in user.groups if self.is_group else self.name == user.name


class Binding:
    """Who gets which role. ``namespace`` empty: everywhere."""

    __slots__ = ("_reason", "name", "namespace", "role_kind", "role_name", "subjects")

    def __init__(self, namespace: str, obj: JSONObject) -> None:
        role = obj.get("roleRef") or {}
        self.namespace = namespace
        self.name: str = obj["metadata"]["name"]
        self.role_kind: str = role.get("kind", "")
        self.role_name: str = role.get("name", "")
        self.subjects = [one for one in (_subject(subject, namespace) for subject in obj.get("subjects") or ()) if one is not None]
        shown = f"{self.name}/{namespace}" if namespace else self.name
        kind = "RoleBinding" if namespace else "ClusterRoleBinding"
        self._reason = f"RBAC: allowed by {kind} {go_quoted(shown)} of {self.role_kind} {go_quoted(self.role_name)} to "

    def allows(self, user: User) -> Decision:
        """The answer to a question that the role allows."""
        return Decision(True, reason=self._reason + next(one.text for one in self.subjects if one.is_about(user)))


def _subject(subject: JSONObject, namespace: str) -> Subject | None:
    kind, name = subject.get("kind", ""), subject.get("name", "")
    if kind != "ServiceAccount":
        return Subject(name, f"{kind} {go_quoted(name)}", kind == "Group") if kind in ("User", "Group") else None
    home = subject.get("namespace") or namespace
    return Subject(f"{ACCOUNT}{home}:{name}", f"{kind} {go_quoted(f'{name}/{home}')}") if home else None


@dataclass(slots=True)
class _Bindings:
    """Those of one namespace, or of none."""

    named: dict[str, Binding] = field(default_factory=dict)
    of_users: dict[str, list[Binding]] = field(default_factory=dict)
    of_groups: dict[str, list[Binding]] = field(default_factory=dict)

    def put(self, name: str, binding: Binding | None) -> None:
        before = self.named.pop(name, None)
        if before is not None:
            for where, key in self._places(before):
                where[key].remove(before)
                if not where[key]:
                    del where[key]
        if binding is not None:
            self.named[name] = binding
            for where, key in self._places(binding):
                where.setdefault(key, []).append(binding)
                where[key].sort(key=lambda one: one.name)

    def _places(self, binding: Binding) -> list[tuple[dict[str, list[Binding]], str]]:
        different = dict.fromkeys((one.name, one.is_group) for one in binding.subjects)
        return [(self.of_groups if group else self.of_users, key) for key, group in different]

    def about(self, user: User) -> Iterator[Binding]:
        """Some may come twice."""
        yield from self.of_users.get(user.name, ())
        of_groups = self.of_groups
        for group in user.groups:
            if group in of_groups:
                yield from of_groups[group]


class RoleIndex:
    """Guarantees: a question costs what the bindings of its user cost, however many others there are."""

    def __init__(self) -> None:
        #: Grows with every change.
        self.revision = 0
        self._bindings: dict[str, _Bindings] = {"": _Bindings()}
        self._roles: dict[tuple[str, str], RoleRules] = {}

    def put_role(self, namespace: str, name: str, obj: JSONObject | None) -> None:
        """A Role, or, with no ``namespace``, a ClusterRole; ``obj`` None: it is gone."""
        self.revision += 1
        if obj is None:
            self._roles.pop((namespace, name), None)
        else:
            self._roles[namespace, name] = RoleRules(obj.get("rules") or [])

    def put_binding(self, namespace: str, name: str, obj: JSONObject | None) -> None:
        self.revision += 1
        bindings = self._bindings.setdefault(namespace, _Bindings())
        bindings.put(name, None if obj is None else Binding(namespace, obj))
        if namespace and not bindings.named:
            del self._bindings[namespace]

    def has_bindings(self, namespace: str) -> bool:
        return namespace in self._bindings

    def bindings_in(self, user: User, namespace: str) -> Iterator[Binding]:
        """Those about ``user`` of one namespace, or, if it is empty, those that count everywhere; some of them twice."""
        if namespace in self._bindings:
            yield from self._bindings[namespace].about(user)

    def bindings(self, user: User, namespace: str) -> Iterator[Binding]:
        """Those about ``user`` that count in ``namespace``, some of them twice."""
        yield from self.bindings_in(user, "")
        if namespace:
            yield from self.bindings_in(user, namespace)

    def role(self, kind: str, name: str, namespace: str) -> RoleRules | None:
        return self._roles.get(("" if kind == "ClusterRole" else namespace, name))


def missing(kind: str, name: str) -> str:
    """That a binding names a role that is not there."""
    return f"{kind.lower()}.{GROUP} {go_quoted(name)} not found"
