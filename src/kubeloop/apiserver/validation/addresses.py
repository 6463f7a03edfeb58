"""Warnings about addresses that are accepted but not written as they should be. Source: GetWarningsForIP, GetWarningsForCIDR."""

from __future__ import annotations

import ipaddress

from kubeloop.apiserver.validation.formats import ip_address, sloppy_cidr, sloppy_ip


def ip_warnings(path: str, value: str) -> list[str]:
    found = sloppy_ip(value)
    if found is None:
        return []
    if ip_address(value):
        plain = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped else found
        return [f'{path}: non-standard IP address "{value}" is invalid: use "{plain}"']
    if str(found) != value:
        return [f'{path}: IPv6 address "{value}" should be in RFC 5952 canonical format ("{found}")']
    return []


def cidr_warnings(path: str, value: str) -> list[str]:
    network = sloppy_cidr(value)
    address = sloppy_ip(value.partition("/")[0])
    if network is None or address is None:
        return []
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    shown = str(network)
    if mapped is not None and network.prefixlen >= 96:
        shown = str(ipaddress.ip_network((mapped, network.prefixlen - 96), strict=False))
    found = []
    if network.network_address != address:
        single = f"{mapped or address}/{32 if mapped else address.max_prefixlen}"
        found.append(f'{path}: CIDR value "{value}" is ambiguous in this context (should be "{shown}" or "{single}"?)')
    plain = f"{address}/{network.prefixlen}"
    if mapped is not None or (address.version == 4 and plain != value):
        found.append(f'{path}: non-standard CIDR value "{value}" is invalid: use "{shown}"')
    if not found and plain != value:
        found.append(f'{path}: IPv6 CIDR value "{value}" should be in RFC 5952 canonical format ("{plain}")')
    return found
