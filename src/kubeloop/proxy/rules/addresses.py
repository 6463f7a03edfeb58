"""Replaces IP addresses and ports in the objects that carry them to load balancers: Endpoints, EndpointSlices and Pods."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Any, Final

from kubeloop.types import JSONObject

#: Source: k8s.io/api core/v1 (Endpoints, Pod) and discovery/v1 (EndpointSlice): the fields with addresses, by group and resource.
ADDRESS_FIELDS: Final = {
    ("", "endpoints"): (("subsets",),),
    ("discovery.k8s.io", "endpointslices"): (("endpoints",), ("ports",), ("addressType",)),
    ("", "pods"): (("status", "podIP"), ("status", "podIPs"), ("status", "hostIP"), ("status", "hostIPs")),
}


class AddressMap:
    """Replaces every address of an object by one address, and every port if a port is given.

    >>> AddressMap("127.0.0.9", None).apply("", "pods", {"status": {"podIP": "10.0.0.7"}})
    {'status': {'podIP': '127.0.0.9'}}
    """

    __slots__ = ("_changes", "_port", "_to", "_type")

    def __init__(self, to: str, port: int | None) -> None:
        """Create a map.

        Raises:
            ValueError: ``to`` is not an IP address.
        """
        self._to = to
        self._type = f"IPv{ipaddress.ip_address(to).version}"
        self._port = port
        self._changes: dict[tuple[str, str], Callable[[JSONObject], JSONObject]] = {
            ("", "endpoints"): self._endpoints,
            ("discovery.k8s.io", "endpointslices"): self._slice,
            ("", "pods"): self._pod,
        }

    def apply(self, group: str, resource: str, tree: JSONObject) -> JSONObject:
        """Return the object with other addresses, or the object itself if nothing changes.

        Items of a list have no kind, therefore the resource decides.

        Args:
            group: API group of the request.
            resource: Resource of the request.
            tree: The object, which is not changed.
        """
        change = self._changes.get((group, resource))
        return tree if change is None else change(tree)

    def _pod(self, tree: JSONObject) -> JSONObject:
        status = tree.get("status")
        if not isinstance(status, dict):
            return tree
        changed: JSONObject = {}
        for name in ("podIP", "hostIP"):
            if status.get(name) and status[name] != self._to:
                changed[name] = self._to
        # A pod has at most one address of each family: one address replaces both.
        for name in ("podIPs", "hostIPs"):
            if status.get(name) and status[name] != [{"ip": self._to}]:
                changed[name] = [{"ip": self._to}]
        return {**tree, "status": {**status, **changed}} if changed else tree

    def _endpoints(self, tree: JSONObject) -> JSONObject:
        return _with_items(tree, "subsets", self._subset)

    def _subset(self, subset: JSONObject) -> JSONObject:
        for name in ("addresses", "notReadyAddresses"):
            subset = _with_items(subset, name, self._address)
        return _with_items(subset, "ports", self._with_port)

    def _address(self, address: JSONObject) -> JSONObject:
        return address if address.get("ip") == self._to else {**address, "ip": self._to}

    def _slice(self, tree: JSONObject) -> JSONObject:
        changed = _with_items(_with_items(tree, "endpoints", self._endpoint), "ports", self._with_port)
        # Consumers choose slices by the family of their addresses.
        if changed.get("addressType") not in (None, self._type):
            changed = {**changed, "addressType": self._type}
        return changed

    def _endpoint(self, endpoint: JSONObject) -> JSONObject:
        # The addresses of one endpoint are fungible (discovery/v1, Endpoint.addresses).
        if not endpoint.get("addresses") or endpoint["addresses"] == [self._to]:
            return endpoint
        return {**endpoint, "addresses": [self._to]}

    def _with_port(self, port: JSONObject) -> JSONObject:
        return port if self._port is None or port.get("port") == self._port else {**port, "port": self._port}


def _with_items(tree: JSONObject, name: str, change: Callable[[JSONObject], JSONObject]) -> JSONObject:
    """Return a mapping with each mapping of a list changed, or the mapping itself if none changes."""
    items = tree.get(name)
    if not isinstance(items, list):
        return tree
    result: list[Any] = [change(item) if isinstance(item, dict) else item for item in items]
    return {**tree, name: result} if any(new is not old for new, old in zip(result, items, strict=True)) else tree
