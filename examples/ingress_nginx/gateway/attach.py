"""Which routes attach to which listeners: references to parents, namespaces, kinds and host names. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from examples.ingress_nginx.gateway.listeners import ListenerState
from examples.ingress_nginx.gateway.objects import GROUP, GatewayObjects
from examples.ingress_nginx.gateway.records import RouteRecord
from examples.ingress_nginx.gateway.reports import ConditionState, ParentReference
from examples.ingress_nginx.model.configuration import CATCH_ALL
from kubeloop.meta import selector_from


@dataclass(frozen=True, slots=True)
class Attachment:
    """A route at a listener, with the hosts that both have. ``CATCH_ALL``: both have all hosts."""

    record: RouteRecord
    listener: ListenerState
    hosts: tuple[str, ...]


def intersection(first: str, second: str) -> str | None:
    """Return the host name that two host names have in common, or None. Empty: all hosts.

    A wildcard stands for one or more labels: ``*.example.com`` and ``a.b.example.com`` have ``a.b.example.com`` in common.
    """
    if not first or not second or first == second:
        return first or second
    if first.startswith("*.") and second.endswith(first[1:]):
        return second
    if second.startswith("*.") and first.endswith(second[1:]):
        return first
    return None


def common_hosts(listener: str, hostnames: Iterable[str]) -> tuple[str, ...]:
    """Return the hosts of a listener that a route has, too. ``hostnames`` empty: the route has all hosts."""
    names = [intersection(listener, hostname) for hostname in list(hostnames) or [""]]
    return tuple(dict.fromkeys(name or CATCH_ALL for name in names if name is not None))


def attach(
    record: RouteRecord, parent: ParentReference, listeners: Sequence[ListenerState], objects: GatewayObjects
) -> tuple[list[Attachment], ConditionState]:
    """Attach a route to the listeners of a Gateway to which one of its references leads.

    Args:
        record: The route.
        parent: The reference.
        listeners: All listeners of the Gateway.
        objects: Reads the route's namespace.

    Returns:
        The attachments, and the condition Accepted of the route at this parent.
    """
    name = f"Gateway {parent.namespace}/{parent.name}"
    named = [listener for listener in listeners if parent.section in ("", listener.spec.name) and parent.port in (0, listener.spec.port)]
    if not named:
        wish = " and ".join(f"{part} {value}" for part, value in (("name", parent.section), ("port", parent.port)) if value)
        return [], ConditionState("Accepted", False, "NoMatchingParent", f"{name} has no listener with {wish}")
    allowing = [listener for listener in named if allows(listener, record, objects)]
    if not allowing:
        text = f"no listener of {name} allows a {record.kind} of namespace {record.key[0]}"
        return [], ConditionState("Accepted", False, "NotAllowedByListeners", text)
    attachments = [
        Attachment(record, listener, hosts) for listener in allowing if (hosts := common_hosts(listener.hostname, record.hostnames))
    ]
    if not attachments:
        text = f"no listener of {name} has a host name of the route"
        return [], ConditionState("Accepted", False, "NoMatchingListenerHostname", text)
    return attachments, ConditionState("Accepted", True, "Accepted", f"the route is attached to {name}")


def allows(listener: ListenerState, record: RouteRecord, objects: GatewayObjects) -> bool:
    """Report whether a listener allows a route of this kind and namespace."""
    if (GROUP, record.kind) not in listener.kinds:
        return False
    allowed = listener.spec.allowed_routes
    namespaces = None if allowed is None else allowed.namespaces
    choice = "Same" if namespaces is None else namespaces.from_
    if choice == "Selector" and namespaces is not None and namespaces.selector is not None:
        namespace = objects.namespace(record.key[0])
        return namespace is not None and selector_from(namespaces.selector).matches(namespace.metadata.labels)
    return choice == "All" or (choice == "Same" and record.key[0] == listener.gateway.metadata.namespace)
