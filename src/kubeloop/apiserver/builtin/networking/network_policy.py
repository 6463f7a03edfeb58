"""Strategy of NetworkPolicies. Source: ValidateNetworkPolicy, ValidateNetworkPolicyUpdate."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any

from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.apiserver.validation.formats import check_one_of, cidr_warnings, each, sloppy_cidr, validate_cidr
from kubeloop.apiserver.validation.metadata import validate_label_selector
from kubeloop.meta.field_error import Errors, FieldError, forbidden, invalid, required
from kubeloop.meta.names import port_name, port_number
from kubeloop.types import JSONObject

_DIRECTIONS = (("ingress", "from"), ("egress", "to"))


class NetworkPolicyStrategy(BuiltinStrategy):
    """Strategy of NetworkPolicies. It accepts invalid IP blocks that are stored already."""

    def prepare_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> None:
        super().prepare_update(context, obj, old)
        if isinstance(context.sent, dict) and _holds_empties(context.sent.get("spec")):
            # The stored object has no empty lists, and upstream's comparison of the specs (reflect.DeepEqual) distinguishes empty from
            # absent.
            obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return list(_spec(obj["spec"], known=(), any_value=False))

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        any_value = bool(list(validate_label_selector("", old["spec"].get("podSelector"))))
        known = [text for _, block in _blocks(old["spec"]) for text in (block.get("cidr", ""), *(block.get("except") or ()))]
        return list(_spec(obj["spec"], known=tuple(known), any_value=any_value))

    def warnings(self, context: WriteRequest, obj: JSONObject) -> list[str]:
        messages = []
        for path, block in _blocks(obj["spec"]):
            messages += cidr_warnings(f"{path}.cidr", block.get("cidr", ""))
            for index, text in enumerate(block.get("except") or ()):
                messages += cidr_warnings(f"{path}.except[{index}]", text)
        return messages


def _holds_empties(tree: Any) -> bool:
    """Return whether a tree has an empty list, or an empty map that is not a struct. An absent policyTypes equals its default."""
    if isinstance(tree, list):
        return not tree or any(map(_holds_empties, tree))
    if not isinstance(tree, dict):
        return False
    return tree.get("matchLabels") == {} or any(_holds_empties(value) for name, value in tree.items() if name != "policyTypes")


def _blocks(spec: JSONObject) -> Iterator[tuple[str, JSONObject]]:
    for direction, peers in _DIRECTIONS:
        for index, rule in enumerate(spec.get(direction) or ()):
            for peer_at, peer in enumerate(rule.get(peers) or ()):
                if peer.get("ipBlock") is not None:
                    yield f"spec.{direction}[{index}].{peers}[{peer_at}].ipBlock", peer["ipBlock"]


def _spec(spec: JSONObject, *, known: tuple[str, ...], any_value: bool) -> Errors:
    yield from validate_label_selector("spec.podSelector", spec.get("podSelector"), any_value=any_value)
    for direction, peers in _DIRECTIONS:
        for index, rule in enumerate(spec.get(direction) or ()):
            here = f"spec.{direction}[{index}]"
            for port_at, port in enumerate(rule.get("ports") or ()):
                yield from _port(f"{here}.ports[{port_at}]", port)
            for peer_at, peer in enumerate(rule.get(peers) or ()):
                yield from _peer(f"{here}.{peers}[{peer_at}]", peer, known, any_value)
    types = spec.get("policyTypes") or []
    if len(types) > len(_DIRECTIONS):
        yield invalid("spec.policyTypes", types, "may not specify more than two policyTypes")
        return
    for index, kind in enumerate(types):
        yield from check_one_of(f"spec.policyTypes[{index}]", kind, ("Ingress", "Egress"))


def _port(path: str, port: JSONObject) -> Errors:
    number, end = port.get("port"), port.get("endPort")
    if port.get("protocol") is not None:
        yield from check_one_of(f"{path}.protocol", port["protocol"], ("TCP", "UDP", "SCTP"))
    if isinstance(number, int):
        yield from each(f"{path}.port", number, port_number(number))
        if end is not None:
            if end < number:
                yield invalid(f"{path}.endPort", number, "must be greater than or equal to `port`")
            yield from each(f"{path}.endPort", end, port_number(end))
    elif number is not None:
        if end is not None:
            yield invalid(f"{path}.endPort", end, "may not be specified when `port` is non-numeric")
        yield from each(f"{path}.port", number, port_name(number))
    elif end is not None:
        yield invalid(f"{path}.endPort", end, "may not be specified when `port` is not specified")


def _peer(path: str, peer: JSONObject, known: tuple[str, ...], any_value: bool) -> Errors:
    values = [name for name in ("podSelector", "namespaceSelector", "ipBlock") if peer.get(name) is not None]
    for name in values[:]:
        if name != "ipBlock":
            yield from validate_label_selector(f"{path}.{name}", peer[name], any_value=any_value)
        else:
            yield from _block(f"{path}.ipBlock", peer["ipBlock"], known)
    if not values:
        yield required(path, "must specify a peer")
    elif len(values) > 1 and "ipBlock" in values:
        yield forbidden(path, "may not specify both ipBlock and another peer")


def _block(path: str, block: JSONObject, known: tuple[str, ...]) -> Errors:
    whole = block.get("cidr", "")
    if not whole:
        yield required(f"{path}.cidr")
        return
    if whole not in known:
        yield from each(f"{path}.cidr", whole, validate_cidr(whole))
    network = sloppy_cidr(whole)
    if network is None:
        return
    for index, text in enumerate(block.get("except") or ()):
        here = f"{path}.except[{index}]"
        if text not in known:
            yield from each(here, text, validate_cidr(text))
        part = sloppy_cidr(text)
        if part is not None and not _strictly_inside(part, network):
            yield invalid(here, text, "must be a strict subset of `cidr`")


def _strictly_inside(part: ipaddress.IPv4Network | ipaddress.IPv6Network, network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> bool:
    return part.network_address in network and part.prefixlen > network.prefixlen
