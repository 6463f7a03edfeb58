"""Authorization of impersonation: first by the modes of constrained impersonation, then by the plain verb ``impersonate``.

Source: k8s.io/apiserver pkg/endpoints/filters/impersonation, KEP-5284.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from msgspec import structs

from kubeloop.endpoints.access import ANONYMOUS, AUTHENTICATED, MASTERS, UNAUTHENTICATED, Access, Authorizer, User, forbidden, require
from kubeloop.meta.errors import ApiError
from kubeloop.meta.names import dns1123_label, dns1123_subdomain
from kubeloop.meta.strconv import go_quoted

_NODE, _ACCOUNT = "system:node:", "system:serviceaccount:"
_NODES, _ACCOUNTS = "system:nodes", "system:serviceaccounts"
_AUTHENTICATION = "authentication.k8s.io"
#: Extra attribute of a service account whose token is bound to a pod on a node.
NODE_NAME = "authentication.kubernetes.io/node-name"
_EXTRA_KEYS = "authentication.kubernetes.io/associated-node-keys"

#: From this number of groups or extras on, one check for ``*`` comes first.
_MANY = 4
#: Maximum users whose last impersonation mode is cached, and maximum characters of a cached user.
_MOST_REMEMBERED, _LONGEST_REMEMBERED = 10_000, 256


@dataclass(frozen=True, slots=True)
class Mode:
    """A mode of impersonation. ``name`` is empty for the unconstrained mode.

    ``fits(requester, user)`` returns whether the mode applies to this pair of users.
    """

    name: str
    fits: Callable[[User, User], bool]

    @property
    def verb(self) -> str:
        """The verb that the requester needs."""
        return f"impersonate:{self.name}" if self.name else "impersonate"


class Impersonation:
    """Authorizes impersonation. The first mode that allows it decides; a rejection has the error of the first mode."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer
        self._last: dict[str, Mode] = {}

    def authorize(self, access: Access, impersonated: User) -> tuple[User, str]:
        """Authorize an impersonation.

        Args:
            access: The request of the real user.
            impersonated: The user in the impersonation headers.

        Returns:
            The impersonated user with the groups that such a user always has, and the verb of the mode for the audit log ("" for the
            unconstrained mode).

        Raises:
            Forbidden: No mode allows it.
        """
        refused: ApiError | None = None
        last = self._last.get(access.user.name)
        for mode in _MODES if last is None else (last, *(one for one in _MODES if one is not last)):
            if not mode.fits(access.user, impersonated):
                continue
            try:
                user = self._judge(mode, access, impersonated)
            except ApiError as error:
                refused = refused or error
                continue
            self._remember(access.user.name, mode)
            return user, mode.verb if mode.name else ""
        assert refused is not None  # the unconstrained mode applies to all users
        try:
            raise refused
        finally:
            refused = None  # breaks the reference cycle of exception, traceback and frame

    def _remember(self, user: str, mode: Mode) -> None:
        self._last.pop(user, None)
        if len(user) <= _LONGEST_REMEMBERED:
            self._last[user] = mode
        if len(self._last) > _MOST_REMEMBERED:
            del self._last[next(iter(self._last))]

    def _judge(self, mode: Mode, access: Access, impersonated: User) -> User:
        requester, node_name = access.user, ""
        if mode is _ASSOCIATED:
            requester = replace(requester, extra={_EXTRA_KEYS: tuple(sorted(requester.extra))})
            node_name = "*"  # the token names the node, so the requester needs the right for any such node
        if mode.name:
            require(self._authorizer, structs.replace(access, user=requester, verb=f"impersonate-on:{mode.name}:{access.verb}"))
        for question in _questions(mode, requester, impersonated, node_name):
            if isinstance(question, tuple):
                many, single = question
                if self._authorizer.authorize(many).allowed:
                    continue
                for one in single:
                    require(self._authorizer, one)
            else:
                require(self._authorizer, question)
        return _completed(mode, impersonated)


#: An access check that must pass; or a check that, if it passes, makes the checks in the list unnecessary.
_Question = Access | tuple[Access, list[Access]]


def _questions(mode: Mode, requester: User, impersonated: User, node_name: str) -> Iterator[_Question]:
    """Yield the access checks that the requester must pass, in upstream's order.

    Raises Forbidden for identities that no user may impersonate.
    """
    group = _AUTHENTICATION if mode.name else ""

    def to(description: str, name: str, *, group: str = _AUTHENTICATION, sub: str = "", namespace: str = "") -> Access:
        return Access(requester, mode.verb, group, "v1", description, sub, namespace, name)

    account = account_of(impersonated.name)
    node = node_of(impersonated.name) if mode.name else ""
    if account is not None:
        yield to("serviceaccounts", account[1], group=group, namespace=account[0])
    elif node:
        yield to("nodes", node_name or node, group=group)
    else:
        yield to("users", impersonated.name, group=group)
    if impersonated.uid:
        yield to("uids", impersonated.uid)
    if impersonated.groups:
        if mode.name and "" in impersonated.groups:
            raise forbidden(to("groups", "", group=group), "impersonating the empty string group is not allowed")
        if mode.name and MASTERS in impersonated.groups:
            raise forbidden(to("groups", MASTERS, group=group), "impersonating the system:masters group is not allowed")
        yield from _together(mode, [to("groups", one, group=group) for one in impersonated.groups], to("groups", "*", group=group))
    if impersonated.extra:
        error = _extra_fault(impersonated.extra) if mode.name else ""
        if error:
            raise forbidden(to("userextras", ""), error)
        each = [to("userextras", value, sub=key) for key, values in sorted(impersonated.extra.items()) for value in values]
        yield from _together(mode, each, to("userextras", "*", sub="*"))


def _together(mode: Mode, single: list[Access], many: Access) -> Iterator[_Question]:
    if mode.name and len(single) >= _MANY:
        yield many, single
    else:
        yield from single


def _extra_fault(extra: Mapping[str, tuple[str, ...]]) -> str:
    from kubeloop.apiserver.builtin.networking.ingress import validate_domain_prefixed_path

    for key, values in sorted(extra.items()):
        if not key:
            return "impersonating the empty string key in extra is not allowed"
        faults = [str(one) for one in validate_domain_prefixed_path("extra.key", key)]
        if faults:
            text = faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]"
            return f"impersonating an invalid key in extra is not allowed: {text}"
        if key != key.lower():
            return f"impersonating a non-lowercase key in extra is not allowed: {go_quoted(key)}"
        if "" in values:
            return "impersonating the empty string value in extra is not allowed"
    return ""


def _completed(mode: Mode, impersonated: User) -> User:
    """Return the impersonated user with the groups that such a user always has.

    The requester needs no right to impersonate these groups.
    """
    groups, account = list(impersonated.groups), account_of(impersonated.name)
    if account is not None and not groups:
        groups = [_ACCOUNTS, f"{_ACCOUNTS}:{account[0]}"]
    elif mode.name and node_of(impersonated.name):
        groups = [_NODES]
    if impersonated.name == ANONYMOUS.name:
        if UNAUTHENTICATED not in groups:
            groups.append(UNAUTHENTICATED)
    elif UNAUTHENTICATED not in groups and AUTHENTICATED not in groups:
        groups.append(AUTHENTICATED)
    return replace(impersonated, groups=tuple(groups))


def node_of(user: str) -> str:
    """Return the node whose kubelet has a user name, or "" if it is not a kubelet."""
    name = user.removeprefix(_NODE)
    return "" if name == user or dns1123_subdomain(name) else name


def account_of(user: str) -> tuple[str, str] | None:
    """Return namespace and name of the service account that has a user name, or None if it is not a service account."""
    parts = user.removeprefix(_ACCOUNT).split(":")
    if not user.startswith(_ACCOUNT) or len(parts) != 2 or dns1123_label(parts[0]) or dns1123_subdomain(parts[1]):
        return None
    return parts[0], parts[1]


def _only_name(impersonated: User) -> bool:
    return not (impersonated.uid or impersonated.groups or impersonated.extra)


def _is_its_node(requester: User, impersonated: User) -> bool:
    """Return whether a service account impersonates the node to which its token is bound."""
    node = node_of(impersonated.name)
    return bool(node) and _only_name(impersonated) and account_of(requester.name) is not None and requester.extra.get(NODE_NAME) == (node,)


_ASSOCIATED = Mode("associated-node", _is_its_node)
_MODES = (
    _ASSOCIATED,
    Mode("arbitrary-node", lambda _, impersonated: _only_name(impersonated) and bool(node_of(impersonated.name))),
    Mode("serviceaccount", lambda _, impersonated: _only_name(impersonated) and account_of(impersonated.name) is not None),
    Mode("user-info", lambda _, impersonated: not node_of(impersonated.name) and account_of(impersonated.name) is None),
    Mode("", lambda _, __: True),
)
