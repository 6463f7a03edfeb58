"""Decisions by an index of roles and bindings that changes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.apiserver.authorization.rbac import IndexedBinding, RoleAuthorizer, RoleIndex
from kubeloop.apiserver.authorization.rbac_rules import RoleRules
from kubeloop.endpoints.access import Access, Rules, User

GET_PODS = {"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]}


def binding(name: str, role: str, *subjects: dict[str, str], kind: str = "Role") -> dict[str, Any]:
    return {"metadata": {"name": name}, "roleRef": {"kind": kind, "name": role}, "subjects": list(subjects)}


def user(name: str) -> dict[str, str]:
    return {"kind": "User", "name": name}


def pods(who: User, namespace: str) -> Access:
    return Access(who, "get", "", "v1", "pods", "", namespace)


def test_a_decision_follows_each_change_at_once() -> None:
    index, eve = RoleIndex(), User("eve", ("devs",))
    roles = RoleAuthorizer(index)
    assert not roles.authorize(pods(eve, "shop")).allowed
    index.put_binding("shop", "b", binding("b", "r", user("eve")))
    assert roles.authorize(pods(eve, "shop")).reason == 'RBAC: role.rbac.authorization.k8s.io "r" not found'
    index.put_role("shop", "r", GET_PODS)
    assert roles.authorize(pods(eve, "shop")).reason == 'RBAC: allowed by RoleBinding "b/shop" of Role "r" to User "eve"'
    assert not roles.authorize(pods(eve, "else")).allowed
    index.put_binding("shop", "b", binding("b", "r", {"kind": "Group", "name": "devs"}))
    assert roles.authorize(pods(eve, "shop")).reason.endswith('to Group "devs"')
    index.put_role("shop", "r", {"rules": []})
    assert not roles.authorize(pods(eve, "shop")).allowed
    index.put_role("shop", "r", GET_PODS)
    index.put_binding("shop", "b", None)
    assert not roles.authorize(pods(eve, "shop")).allowed


def test_bindings_are_looked_up_once_for_each_user_until_one_changes() -> None:
    class Counted(RoleIndex):
        lookups = 0

        def bindings_in(self, user: User, namespace: str) -> Iterator[IndexedBinding]:
            self.lookups += 1
            return super().bindings_in(user, namespace)

    index = Counted()
    roles, lookups = RoleAuthorizer(index), []
    for _ in range(2):
        for name in ("eve", "eve", "bob"):
            roles.authorize(pods(User(name), "shop"))
            lookups.append(index.lookups)
        index.put_role("", "r", GET_PODS)
    assert lookups == [1, 1, 2, 3, 3, 4]


def test_users_of_whom_much_is_said_are_not_remembered() -> None:
    index = RoleIndex()
    index.put_role("", "r", GET_PODS)
    index.put_binding("", "b", binding("b", "r", {"kind": "Group", "name": "devs"}, kind="ClusterRole"))
    roles = RoleAuthorizer(index)
    tracemalloc.start()
    try:
        for number in range(20):
            assert roles.authorize(pods(User(f"eve{number}", ("devs", "x" * 100_000 + str(number))), "")).allowed
            assert roles.authorize(pods(User(f"{'y' * 100_000}{number}", ("devs",)), "")).allowed
            assert roles.authorize(pods(User("eve", ("devs", *(f"{number}-{one}" for one in range(1000)))), "")).allowed
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1 << 20  # of four that were said


def test_namespaces_that_come_and_go_leave_no_bindings_behind() -> None:
    index = RoleIndex()
    tracemalloc.start()
    try:
        for number in range(500):
            index.put_binding(f"shop-{number}", "b", binding("b", "r", user("eve")))
            index.put_binding(f"shop-{number}", "b", None)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1 << 15, "fewer than 64 bytes for each namespace"


def test_a_reason_names_the_first_subject_that_is_meant() -> None:
    index = RoleIndex()
    index.put_role("", "r", GET_PODS)
    subjects = (user("other"), {"kind": "Group", "name": "devs"}, user("eve"))
    index.put_binding("", "b", binding("b", "r", *subjects, kind="ClusterRole"))
    found = RoleAuthorizer(index).authorize(pods(User("eve", ("devs",)), "shop"))
    assert found.reason == 'RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "r" to Group "devs"'


def test_the_rules_of_a_user_are_listed_without_empty_fields_and_missing_roles_are_named() -> None:
    index = RoleIndex()
    named = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["p"], "nonResourceURLs": []}
    both = {"verbs": ["get"], "apiGroups": [], "resources": [], "nonResourceURLs": ["/healthz"]}
    index.put_role("", "r", {"rules": [named, both]})
    for name, role in (("b", "r"), ("c", "gone")):
        index.put_binding("", name, binding(name, role, user("eve"), kind="ClusterRole"))
    assert RoleAuthorizer(index).rules(User("eve"), "shop") == Rules(
        resources=[{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["p"]}],
        paths=[{"verbs": ["get"], "nonResourceURLs": ["/healthz"]}],
        error='clusterrole.rbac.authorization.k8s.io "gone" not found',
    )


def test_a_service_account_without_namespace_is_in_that_of_a_binding_and_matches_none_in_a_cluster_wide_binding() -> None:
    index = RoleIndex()
    index.put_role("shop", "r", GET_PODS)
    index.put_role("", "r", GET_PODS)
    robot = {"kind": "ServiceAccount", "name": "robot"}
    index.put_binding("shop", "b", binding("b", "r", robot))
    index.put_binding("", "b", binding("b", "r", robot, kind="ClusterRole"))
    roles = RoleAuthorizer(index)
    assert roles.authorize(pods(User("system:serviceaccount:shop:robot"), "shop")).allowed
    assert not roles.authorize(pods(User("system:serviceaccount:else:robot"), "else")).allowed


_NAMES = st.sampled_from(["a", "b"])
_SPACES = st.sampled_from(["", "shop", "else"])
_SUBJECTS = st.lists(
    st.builds(lambda kind, name: {"kind": kind, "name": name}, st.sampled_from(["User", "Group", "ServiceAccount", "Other"]), _NAMES)
)
_RULES = st.lists(
    st.builds(
        lambda verbs, resources: {"verbs": verbs, "apiGroups": [""], "resources": resources},
        st.sampled_from([["get"], ["*"], ["list"]]),
        st.sampled_from([["pods"], ["*"], ["*/log"], ["pods/log"]]),
    ),
    max_size=2,
)
_CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("role"), _SPACES, _NAMES, st.none() | _RULES),
        st.tuples(st.just("binding"), _SPACES, _NAMES, st.none() | st.tuples(st.sampled_from(["Role", "ClusterRole"]), _NAMES, _SUBJECTS)),
    ),
    max_size=8,
)


@settings(max_examples=60)
@given(_CHANGES)
def test_the_index_decides_like_a_search_through_all_rules(changes: list[tuple[str, str, str, Any]]) -> None:
    index, all_roles, all_bindings = RoleIndex(), {}, {}
    roles = RoleAuthorizer(index)
    asked = [
        Access(User(name, groups), verb, "", "v1", "pods", sub, namespace)
        for name, groups in (("a", ("b",)), ("system:serviceaccount:shop:a", ()))
        for verb, sub, namespace in (("get", "", "shop"), ("list", "log", "else"), ("get", "log", ""))
    ]
    for what, namespace, name, value in changes:
        if what == "role":
            obj = None if value is None else {"rules": value}
            index.put_role(namespace, name, obj)
            all_roles[namespace, name] = obj
        else:
            obj = None if value is None else binding(name, value[1], *value[2], kind=value[0])
            index.put_binding(namespace, name, obj)
            all_bindings[namespace, name] = obj
        for access in asked:
            assert roles.authorize(access).allowed is _looked_through(all_roles, all_bindings, access)


def _looked_through(all_roles: dict[Any, Any], all_bindings: dict[Any, Any], access: Access) -> bool:
    for (namespace, _), bound in all_bindings.items():
        if bound is None or (namespace and namespace != access.namespace):
            continue
        if any(_is_meant(one, access.user, namespace) for one in bound["subjects"]):
            kind, name = bound["roleRef"]["kind"], bound["roleRef"]["name"]
            role = all_roles.get(("" if kind == "ClusterRole" else namespace, name))
            if role is not None and RoleRules(role["rules"]).allow(access):
                return True
    return False


def _is_meant(subject: dict[str, str], who: User, namespace: str) -> bool:
    match subject["kind"]:
        case "User":
            return who.name == subject["name"]
        case "Group":
            return subject["name"] in who.groups
        case "ServiceAccount":
            return bool(namespace) and who.name == f"system:serviceaccount:{namespace}:{subject['name']}"
    return False
