"""Which users may act as which others: by a mode of constrained impersonation, or the old way."""

from __future__ import annotations

import pytest

from kubeloop.apiserver.authorization import impersonation
from kubeloop.apiserver.authorization.impersonation import Impersonation
from kubeloop.endpoints.access import AUTHENTICATED, Access, Decision, Rules, User
from kubeloop.meta.errors import ApiError

ROBOT = "system:serviceaccount:shop:robot"
AUTHENTICATION = "authentication.k8s.io"


class Some:
    """Allows the listed requests, as ``VERB RESOURCE.GROUP NAME``; remembers the questions that it got."""

    def __init__(self, *allowed: str) -> None:
        self.allowed = set(allowed)
        self.asked: list[str] = []

    def authorize(self, access: Access) -> Decision:
        resource = f"{access.resource}/{access.subresource}" if access.subresource else access.resource
        self.asked.append(f"{access.verb} {resource}.{access.group} {access.name}".strip())
        return Decision(self.asked[-1] in self.allowed)

    def rules(self, user: User, namespace: str) -> Rules:
        return Rules()

    async def prepare(self, user: User) -> None:
        """Nothing is needed."""


def judged(some: Some, target: User, requester: User | None = None) -> tuple[User, str]:
    access = Access(requester or User("eve"), "list", "", "v1", "pods", "", "shop")
    return Impersonation(some).authorize(access, target)


@pytest.mark.parametrize(
    ("allowed", "target", "groups", "mode"),
    [
        pytest.param(
            ["impersonate-on:user-info:list pods.", f"impersonate:user-info users.{AUTHENTICATION} bob"],
            User("bob"),
            (AUTHENTICATED,),
            "impersonate:user-info",
            id="a user, for this verb",
        ),
        pytest.param(["impersonate users. bob"], User("bob"), (AUTHENTICATED,), "", id="a user the old way, for whatever verb"),
        pytest.param(
            ["impersonate-on:serviceaccount:list pods.", f"impersonate:serviceaccount serviceaccounts.{AUTHENTICATION} robot"],
            User(ROBOT),
            ("system:serviceaccounts", "system:serviceaccounts:shop", AUTHENTICATED),
            "impersonate:serviceaccount",
            id="a service account, with its groups",
        ),
        pytest.param(
            ["impersonate-on:arbitrary-node:list pods.", f"impersonate:arbitrary-node nodes.{AUTHENTICATION} n1"],
            User("system:node:n1"),
            ("system:nodes", AUTHENTICATED),
            "impersonate:arbitrary-node",
            id="a node, with its group",
        ),
        pytest.param(
            [
                "impersonate-on:user-info:list pods.",
                f"impersonate:user-info users.{AUTHENTICATION} bob",
                f"impersonate:user-info groups.{AUTHENTICATION} *",
            ],
            User("bob", ("a", "b", "c", "d")),
            ("a", "b", "c", "d", AUTHENTICATED),
            "impersonate:user-info",
            id="many groups by the right to all",
        ),
        pytest.param(
            [
                "impersonate-on:user-info:list pods.",
                f"impersonate:user-info users.{AUTHENTICATION} bob",
                f"impersonate:user-info userextras/*.{AUTHENTICATION} *",
            ],
            User("bob", extra={f"example.com/{number}": ("v",) for number in range(4)}),
            (AUTHENTICATED,),
            "impersonate:user-info",
            id="many extras by the right to all",
        ),
        pytest.param(
            ["impersonate users. bob", *(f"impersonate userextras/example.com/k.{AUTHENTICATION} {value}" for value in "vw")],
            User("bob", extra={"example.com/k": ("v", "w")}),
            (AUTHENTICATED,),
            "",
            id="few extras by the right to each value",
        ),
        pytest.param(
            ["impersonate users. system:anonymous"],
            User("system:anonymous"),
            ("system:unauthenticated",),
            "",
            id="the anonymous user is not authenticated",
        ),
    ],
)
def test_the_impersonated_user_is(allowed: list[str], target: User, groups: tuple[str, ...], mode: str) -> None:
    user, by = judged(Some(*allowed), target)
    assert (user.name, user.groups, by) == (target.name, groups, mode)


def test_a_service_account_may_be_the_node_that_its_token_names_and_no_other() -> None:
    allowed = "impersonate-on:associated-node:list pods.", f"impersonate:associated-node nodes.{AUTHENTICATION} *"
    robot = User(ROBOT, extra={"authentication.kubernetes.io/node-name": ("n1",)})
    assert judged(Some(*allowed), User("system:node:n1"), robot)[1] == "impersonate:associated-node"
    with pytest.raises(ApiError, match="impersonate-on:arbitrary-node:list"):
        judged(Some(*allowed), User("system:node:n2"), robot)


def test_a_refusal_is_that_of_the_first_mode_that_fits_and_of_the_last_that_worked() -> None:
    some = Some("impersonate users. bob")
    modes, access = Impersonation(some), Access(User("eve"), "list", "", "v1", "pods", "", "shop")
    with pytest.raises(ApiError, match="cannot impersonate-on:user-info:list resource"):
        modes.authorize(access, User("carol"))
    modes.authorize(access, User("bob"))
    with pytest.raises(ApiError, match='users "carol" is forbidden: User "eve" cannot impersonate resource "users"'):
        modes.authorize(access, User("carol"))


def test_only_the_modes_of_the_last_users_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(impersonation, "_MOST_REMEMBERED", 2)
    modes = Impersonation(Some("impersonate users. bob"))
    for name in ("a", "b", "a", "c", "x" * 257):
        modes.authorize(Access(User(name), "list", "", "v1", "pods", "", "shop"), User("bob"))
    assert list(modes._last) == ["a", "c"]


@pytest.mark.parametrize(
    ("target", "why"),
    [
        pytest.param(User("bob", ("system:masters",)), "impersonating the system:masters group is not allowed", id="a superuser"),
        pytest.param(User("bob", ("",)), "impersonating the empty string group is not allowed", id="a group without name"),
        pytest.param(
            User("bob", extra={"nodomain": ("v",)}), 'extra.key: Invalid value: "nodomain": must be a domain-prefixed path', id="a key"
        ),
        pytest.param(
            User("bob", extra={"example.com/K": ("v",)}),
            'impersonating a non-lowercase key in extra is not allowed: "example.com/K"',
            id="a key with a capital",
        ),
        pytest.param(User("bob", extra={"example.com/k": ("",)}), "impersonating the empty string value in extra", id="an empty value"),
    ],
)
def test_constrained_modes_refuse(target: User, why: str) -> None:
    some = Some("impersonate-on:user-info:list pods.", f"impersonate:user-info users.{AUTHENTICATION} bob")
    with pytest.raises(ApiError) as refused:
        judged(some, target)
    assert why in refused.value.status.message
