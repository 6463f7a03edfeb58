"""Validates formats of strings and numbers beyond names and labels. Functions return messages, an empty list for a valid value.

Source: k8s.io/apimachinery pkg/util/validation (validation.go, ip.go), with the feature gates of a default 1.36 server.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator
from typing import Any

from kubeloop.meta.field_error import Errors, FieldError, FieldErrorType, invalid, required
from kubeloop.meta.names import dns1123_label, dns1123_subdomain, in_range, percent
from kubeloop.meta.strconv import decimal

MAX_INT32 = 2**31 - 1
NOT_NEGATIVE = "must be greater than or equal to 0"
NOT_POSITIVE = "must be greater than 0"
IMMUTABLE = "field is immutable"

_UNDERSCORE_LABEL = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_UNDERSCORE_NAME = rf"{_UNDERSCORE_LABEL}(\.{_UNDERSCORE_LABEL})*"


def validate_user_id(value: int) -> list[str]:
    """Validate a user or group ID."""
    return in_range(value, 0, MAX_INT32)


def validate_subdomain_with_underscore(value: str) -> list[str]:
    """Validate a DNS-1123 subdomain that may contain underscores."""
    messages = ["must be no more than 253 characters"] if len(value.encode()) > 253 else []
    if not re.fullmatch(_UNDERSCORE_NAME, value):
        messages.append(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end "
            f"with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_UNDERSCORE_NAME}')"
        )
    return messages


def sloppy_ip(value: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Parse an IP address as old versions of Kubernetes do, with decimal leading zeros in IPv4. Return None if it is invalid."""
    if re.fullmatch(r"\d{1,3}(\.\d{1,3}){3}", value, re.ASCII):
        parts = [int(part) for part in value.split(".")]
        return ipaddress.IPv4Address(".".join(map(str, parts))) if max(parts) < 256 else None
    try:
        return ipaddress.IPv6Address(value) if "%" not in value and ":" in value else None
    except ValueError:
        return None


def validate_ip_address(value: str) -> list[str]:
    """Validate an IP address strictly, as StrictIPCIDRValidation requires."""
    current = sloppy_ip(value)
    if current is None:
        return ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"]
    if isinstance(current, ipaddress.IPv4Address):
        return [] if str(current) == value else ["must not have leading 0s"]
    return ["must not be an IPv4-mapped IPv6 address"] if current.ipv4_mapped else []


def validate_canonical_ip(value: str) -> list[str]:
    """Validate an IP address in its canonical form."""
    result = validate_ip_address(value)
    parsed = sloppy_ip(value)
    if result or parsed is None or str(parsed) == value:
        return result
    return [f'must be in canonical form ("{parsed}")']


def sloppy_cidr(value: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """Parse a CIDR as old versions of Kubernetes do. Return None if it is invalid."""
    address, slash, length = value.partition("/")
    parsed = sloppy_ip(address)
    if parsed is None or not slash or not re.fullmatch(r"\d{1,6}", length, re.ASCII) or int(length) > parsed.max_prefixlen:
        return None
    return ipaddress.ip_network((parsed, int(length)), strict=False)


def validate_cidr(value: str) -> list[str]:
    """Validate a CIDR."""
    address, _, length = value.partition("/")
    parsed, network = sloppy_ip(address), sloppy_cidr(value)
    if parsed is None or network is None:
        return ["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"]
    if str(int(length)) != length or (parsed.version == 4 and str(parsed) != address):
        return ["must not have leading 0s in IP or prefix length"]
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped:
        return ["must not have an IPv4-mapped IPv6 address"]
    if network.network_address != parsed:
        return ["must not have bits set beyond the prefix length"]
    return []


def each(path: str, value: Any, messages: Iterable[str]) -> Iterator[FieldError]:
    """Yield an error for each message."""
    for message in messages:
        yield invalid(path, value, message)


def validate_dns_label_field(path: str, value: str) -> Iterator[FieldError]:
    """Validate a DNS-1123 label, such as the name of a container."""
    return each(path, value, dns1123_label(value, False))


def validate_subdomain_field(path: str, value: str) -> Iterator[FieldError]:
    """Validate a DNS-1123 subdomain."""
    return each(path, value, dns1123_subdomain(value, False))


def validate_fully_qualified_name(path: str, name: str, segments: int = 2) -> Iterator[FieldError]:
    """Validate a domain with at least ``segments`` segments; yields at most one error.

    Source: IsFullyQualifiedDomainName, IsFullyQualifiedName.
    """
    if not name:
        yield required(path)
        return
    if segments == 2:
        name = name.removesuffix(".")
    for part in (name, *(name.split(".") if segments == 2 else ())):
        errors = dns1123_subdomain(name) if part is name else dns1123_label(part)
        if errors:
            yield invalid(path, part, ",".join(errors))
            return
        if part is name and name.count(".") < segments - 1:
            number = {2: "two", 3: "three"}[segments]
            yield invalid(path, name, f"should be a domain with at least {number} segments separated by dots")
            return


def check_not_negative(path: str, value: int | None) -> Iterator[FieldError]:
    """Check that a number is zero or more; None is valid."""
    if value is not None and value < 0:
        yield invalid(path, value, NOT_NEGATIVE)


def check_positive(path: str, value: int) -> Iterator[FieldError]:
    """Check that a number is greater than zero."""
    if value <= 0:
        yield invalid(path, value, "must be greater than zero")


def check_immutable(path: str, new: Any, old: Any) -> Iterator[FieldError]:
    """Check that a value is unchanged. Empty and absent are equal, as in Kubernetes' semantic equality."""
    if (new or None) != (old or None) and new != old:
        yield invalid(path, new, IMMUTABLE)


def check_one_of(path: str, value: Any, supported: Iterable[str]) -> Iterator[FieldError]:
    """Check that a value is supported. The message lists ``supported`` in this order, because upstream sorts it for some fields only."""
    values = list(supported)
    if value not in values:
        yield unsupported(path, value, values)


def unsupported(path: str, value: Any, supported: Iterable[str]) -> FieldError:
    """Return the error for an unsupported value."""
    shown = ", ".join(f'"{one}"' for one in supported)
    return FieldError(FieldErrorType.NOT_SUPPORTED, path, value, f"supported values: {shown}")


# Warnings about valid addresses that are not in their canonical form. Source: GetWarningsForIP, GetWarningsForCIDR.


def ip_warnings(path: str, value: str) -> list[str]:
    """Return warnings about an IP address."""
    current = sloppy_ip(value)
    if current is None:
        return []
    if validate_ip_address(value):
        plain = current.ipv4_mapped if isinstance(current, ipaddress.IPv6Address) and current.ipv4_mapped else current
        return [f'{path}: non-standard IP address "{value}" is invalid: use "{plain}"']
    if str(current) != value:
        return [f'{path}: IPv6 address "{value}" should be in RFC 5952 canonical format ("{current}")']
    return []


def cidr_warnings(path: str, value: str) -> list[str]:
    """Return warnings about a CIDR."""
    network = sloppy_cidr(value)
    address = sloppy_ip(value.partition("/")[0])
    if network is None or address is None:
        return []
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    shown = str(network)
    if mapped is not None and network.prefixlen >= 96:
        shown = str(ipaddress.ip_network((mapped, network.prefixlen - 96), strict=False))
    messages = []
    if network.network_address != address:
        single = f"{mapped or address}/{32 if mapped else address.max_prefixlen}"
        messages.append(f'{path}: CIDR value "{value}" is ambiguous in this context (should be "{shown}" or "{single}"?)')
    plain = f"{address}/{network.prefixlen}"
    if mapped is not None or (address.version == 4 and plain != value):
        messages.append(f'{path}: non-standard CIDR value "{value}" is invalid: use "{shown}"')
    if not messages and plain != value:
        messages.append(f'{path}: IPv6 CIDR value "{value}" should be in RFC 5952 canonical format ("{plain}")')
    return messages


# Numbers that may be percentages, as in rolling updates. Source: ValidatePositiveIntOrPercent, IsNotMoreThan100Percent.


def validate_int_or_percent(path: str, value: int | str) -> Iterator[FieldError]:
    """Validate a number of zero or more, or a percentage."""
    if isinstance(value, str):
        yield from each(path, value, percent(value))
    else:
        yield from check_not_negative(path, value)


def check_at_most_100_percent(path: str, value: int | str) -> Iterator[FieldError]:
    """Check that a percentage is at most 100%."""
    if isinstance(value, str) and not percent(value) and (decimal(value[:-1]) or 0) > 100:
        yield invalid(path, value, "must not be greater than 100%")


def int_or_percent_value(value: int | str) -> int:
    """Return the number, or the number of a percentage. Invalid text is zero, as in Go's Atoi."""
    if isinstance(value, int):
        return value
    return decimal(value.removesuffix("%")) or 0


# Paths inside volumes and containers. Source: validateLocalDescendingPath, validatePathNoBacksteps.


def check_no_parent_steps(path: str, target: str) -> Errors:
    """Check that a path does not contain ``..``."""
    if ".." in target.split("/"):
        yield invalid(path, target, "must not contain '..'")


def check_local_path(path: str, target: str) -> Errors:
    """Check that a path is relative and does not contain ``..``."""
    if target.startswith("/"):
        yield invalid(path, target, "must be a relative path")
    yield from check_no_parent_steps(path, target)


def check_local_non_reserved_path(path: str, target: str) -> Errors:
    """Check that a path is local, and does not begin with ``..``, which the kubelet's atomic writer uses."""
    yield from check_local_path(path, target)
    if target.startswith("..") and not target.startswith("../"):
        yield invalid(path, target, "must not start with '..'")


def check_file_mode(path: str, mode: int | None) -> Errors:
    """Check that a file mode is between 0 and 0777."""
    if mode is not None and not 0 <= mode <= 0o777:
        yield invalid(path, mode, "must be a number between 0 and 0777 (octal), both inclusive")
