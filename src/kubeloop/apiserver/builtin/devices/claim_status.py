"""What a claim was given, for whom it is reserved, and what drivers tell of its devices. Source: pkg/apis/resource/validation."""

from __future__ import annotations

import ipaddress
from collections.abc import Hashable
from functools import partial
from typing import Any

from kubeloop.apiserver.builtin.devices.claim_spec import MOST_CONFIGURATIONS, references
from kubeloop.apiserver.builtin.devices.collections import items, itself, unique
from kubeloop.apiserver.builtin.devices.configuration import binding_conditions, configuration, raw_object
from kubeloop.apiserver.builtin.devices.names import Requests, driver_name, pool_name, share_id
from kubeloop.apiserver.builtin.pods.scheduling import node_selector
from kubeloop.apiserver.validation.conditions import conditions
from kubeloop.apiserver.validation.formats import immutable, label_name_field, one_of, sloppy_cidr, sloppy_ip
from kubeloop.meta.field_error import Errors, forbidden, invalid, required, too_long, too_many
from kubeloop.types import JSONObject

Device = tuple[str, str, str, str]

_MOST_CONSUMERS, _MOST_RESULTS, _MOST_CONDITIONS, _MOST_ADDRESSES = 256, 32, 8, 16


def device_of(result: JSONObject) -> Device:
    """Which device, and which share of it."""
    driver, pool, device, share = (result.get(name) or "" for name in ("driver", "pool", "device", "shareID"))
    return driver, pool, device, share


def results_of(status: JSONObject) -> list[JSONObject]:
    found: list[JSONObject] = ((status.get("allocation") or {}).get("devices") or {}).get("results") or []
    return found


def claim_status(path: str, status: JSONObject, old: JSONObject, requests: Requests, *, deleted: bool) -> Errors:
    consumers, allocation = status.get("reservedFor") or [], status.get("allocation")
    reserved = f"{path}.reservedFor"
    yield from unique(reserved, consumers, _MOST_CONSUMERS, _consumer, lambda one: one.get("uid", ""))
    allocated = {device_of(one) for one in results_of(status)}
    yield from unique(f"{path}.devices", status.get("devices"), None, partial(_device, allocated), device_of, _shown)
    if consumers and allocation is None:
        yield forbidden(reserved, "may not be specified when `allocated` is not set")
    elif deleted and any(one not in (old.get("reservedFor") or []) for one in consumers):
        yield forbidden(reserved, "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set")
    if allocation is not None:
        if old.get("allocation") is not None:
            yield from immutable(f"{path}.allocation", allocation, old["allocation"])
        else:
            yield from _allocation(f"{path}.allocation", allocation, requests)


def _consumer(path: str, consumer: JSONObject) -> Errors:
    for name in ("resource", "name", "uid"):
        if not consumer.get(name):
            yield required(f"{path}.{name}")


def _allocation(path: str, allocation: JSONObject, requests: Requests) -> Errors:
    devices = allocation.get("devices") or {}
    yield from items(f"{path}.devices.results", devices.get("results"), _MOST_RESULTS, partial(_result, requests))
    yield from items(f"{path}.devices.config", devices.get("config"), 2 * MOST_CONFIGURATIONS, partial(_configuration, requests))
    if allocation.get("nodeSelector") is not None:
        yield from node_selector(f"{path}.nodeSelector", allocation["nodeSelector"], False)


def _result(requests: Requests, path: str, result: JSONObject) -> Errors:
    yield from requests.check(f"{path}.request", result.get("request", ""))
    yield from _place(path, result)
    yield from binding_conditions(path, result)
    if result.get("shareID") is not None:
        yield from share_id(f"{path}.shareID", result["shareID"])


def _place(path: str, result: JSONObject) -> Errors:
    yield from driver_name(f"{path}.driver", result.get("driver", ""))
    yield from pool_name(f"{path}.pool", result.get("pool", ""))
    yield from label_name_field(f"{path}.device", result.get("device", ""))


def _configuration(requests: Requests, path: str, config: JSONObject) -> Errors:
    if not config.get("source"):
        yield required(f"{path}.source")
    else:
        yield from one_of(f"{path}.source", config["source"], ("FromClaim", "FromClass"))
    yield from references(f"{path}.requests", config.get("requests"), requests)
    yield from configuration(path, config)


def _device(allocated: set[Device], path: str, device: JSONObject) -> Errors:
    yield from _place(path, device)
    if device.get("shareID") is not None:
        yield from share_id(f"{path}.shareID", device["shareID"])
    if device_of(device) not in allocated:
        yield invalid(path, _shown(device_of(device)), "must be an allocated device in the claim")
    found = device.get("conditions") or []
    if len(found) > _MOST_CONDITIONS:
        yield too_many(f"{path}.conditions", len(found), _MOST_CONDITIONS)
    yield from conditions(f"{path}.conditions", found)
    if device.get("data") is not None:
        yield from raw_object(f"{path}.data", device["data"])
    network = device.get("networkData")
    if network is not None:
        yield from _network(f"{path}.networkData", network)


def _shown(device: Hashable) -> Any:
    """As Go prints it."""
    assert isinstance(device, tuple)
    return dict(zip(("Driver", "Pool", "Device", "ShareID"), device, strict=True))


def _network(path: str, network: JSONObject) -> Errors:
    for name, most in (("interfaceName", 256), ("hardwareAddress", 128)):
        if len(network.get(name, "").encode()) > most:
            yield too_long(f"{path}.{name}", most)
    yield from unique(f"{path}.ips", network.get("ips"), _MOST_ADDRESSES, _interface_address, itself)


def _interface_address(path: str, value: str) -> Errors:
    """An address with the length of its network's prefix; bits beyond it may be set."""
    text, _, length = value.partition("/")
    address = sloppy_ip(text)
    if address is None or sloppy_cidr(value) is None:
        yield invalid(path, value, "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)")
        return
    bits = int(length)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    if mapped is not None and bits > 32:
        bits -= 96
    if (canonical := f"{mapped or address}/{bits}") != value:
        yield invalid(path, value, f'must be in canonical form ("{canonical}")')
