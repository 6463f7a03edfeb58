"""Cluster IPs and IP families of a service, alone and against an old state.

Source: ValidateServiceClusterIPsRelatedFields, validateUpgradeDowngradeClusterIPs, validateUpgradeDowngradeIPFamilies.
"""

from __future__ import annotations

from kubeloop.apiserver.builtin.services.facts import is_headless, kind_of
from kubeloop.apiserver.validation.formats import each, ip_address, one_of, sloppy_ip
from kubeloop.meta.field_error import Errors, duplicate, invalid, required
from kubeloop.types import JSONObject

_IPS, _FAMILIES, _POLICY = "spec.clusterIPs", "spec.ipFamilies", "spec.ipFamilyPolicy"
_FIXED = "may not change once set"


def family_of(address: str) -> str:
    return "IPv6" if ":" in address else "IPv4"


def cluster_ips(service: JSONObject, old: JSONObject | None) -> Errors:
    if kind_of(service) == "ExternalName":
        return
    spec = service["spec"]
    first, ips, families = spec.get("clusterIP", ""), spec.get("clusterIPs") or [], spec.get("ipFamilies") or []
    if first:
        if not ips:
            yield required(_IPS)
        elif ips[0] != first:
            yield invalid(_IPS, ips, "first value must match `clusterIP`")
    elif ips:
        yield invalid(_IPS, ips, "must be empty when `clusterIP` is not specified")
    for at, family in enumerate(families):
        yield from one_of(f"{_FAMILIES}[{at}]", family, ("IPv4", "IPv6"))
        if family in families[:at]:
            yield duplicate(f"{_FAMILIES}[{at}]", family)
    if spec.get("ipFamilyPolicy") is not None:
        yield from one_of(_POLICY, spec["ipFamilyPolicy"], ("PreferDualStack", "RequireDualStack", "SingleStack"))
    faults = list(_addresses(ips, ((old or {}).get("spec") or {}).get("clusterIPs") or []))
    yield from faults
    if len(ips) > 2:
        yield invalid(_IPS, ips, "may only hold up to 2 values")
    if faults:
        return
    if len(ips) > 1 and len({family_of(address) for address in ips}) < 2:
        yield invalid(_IPS, ips, "may specify no more than one IP for each IP family")
    if not is_headless(service):
        for at, (address, family) in enumerate(zip(ips, families, strict=False)):
            if family in ("IPv4", "IPv6") and family_of(address) != family:
                yield invalid(f"{_IPS}[{at}]", address, f"expected an {family} value as indicated by `ipFamilies[{at}]`")


def _addresses(ips: list[str], known: list[str]) -> Errors:
    for at, address in enumerate(ips):
        if at == 0 and address == "None":
            if len(ips) > 1:
                yield invalid(_IPS, ips, "'None' must be the first and only value")
        elif address not in known or (sloppy_ip(address) is None and address != "None"):
            yield from each(f"{_IPS}[{at}]", address, ip_address(address))


def cluster_ip_changes(service: JSONObject, old: JSONObject) -> Errors:
    if "ExternalName" in (kind_of(service), kind_of(old)) or (is_headless(service) and is_headless(old)):
        return
    new, before = service["spec"].get("clusterIPs") or [], old["spec"].get("clusterIPs") or []
    if len(new) == len(before):
        for at, address in enumerate(before):
            if address != new[at]:
                yield invalid(f"{_IPS}[{at}]", new, _FIXED)
    elif len(before) > len(new):
        if not new:
            yield invalid(f"{_IPS}[0]", None, "primary clusterIP can not be unset")
        elif new[0] != before[0]:
            yield invalid(f"{_IPS}[0]", new, _FIXED)
        if len(new) == 1:
            yield from _single(service, "clusterIP")
    elif before and new[0] != before[0]:
        yield invalid(f"{_IPS}[0]", new, _FIXED)


def _single(service: JSONObject, what: str) -> Errors:
    policy = service["spec"].get("ipFamilyPolicy")
    if policy != "SingleStack":
        yield invalid(_POLICY, policy, f"must be set to 'SingleStack' when releasing the secondary {what}")


def family_changes(service: JSONObject, old: JSONObject) -> Errors:
    if "ExternalName" in (kind_of(service), kind_of(old)) or is_headless(service) or is_headless(old):
        return
    new, before = service["spec"].get("ipFamilies") or [], old["spec"].get("ipFamilies") or []
    path, ips = f"{_FAMILIES}[0]", service["spec"].get("clusterIPs")
    if len(new) == len(before):
        for at, family in enumerate(before):
            if family != new[at]:
                yield invalid(path, new, _FIXED)
    elif len(before) > len(new):
        if not ips:
            yield invalid(path, new or None, "primary ipFamily can not be unset")
        if new and new[0] != before[0]:
            yield invalid(path, ips, _FIXED)
        if len(new) == 1:
            yield from _single(service, "ipFamily")
    elif before and new[0] != before[0]:
        yield invalid(path, ips, _FIXED)
