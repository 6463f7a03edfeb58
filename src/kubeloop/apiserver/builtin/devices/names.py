"""Names of drivers, pools, requests, attributes and shares. Source: pkg/apis/resource/validation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kubeloop.apiserver.builtin.pods.volume_plugins import csi_driver_name
from kubeloop.apiserver.validation.formats import each, label_name_field, subdomain_field
from kubeloop.meta.field_error import Errors, invalid, required, too_long
from kubeloop.meta.names import c_identifier

#: Of a domain, of an identifier, and of the two with a slash between them.
DOMAIN, IDENTIFIER = 63, 32
QUALIFIED = DOMAIN + 1 + IDENTIFIER
_POOL = 253
_UUID = "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_NO_REQUEST = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"


def driver_name(path: str, name: str) -> Errors:
    return csi_driver_name(path, name)


def pool_name(path: str, name: str) -> Errors:
    if not name:
        yield required(path)
        return
    if len(name) > _POOL:
        yield too_long(path, _POOL)
    for part in name.split("/"):
        yield from subdomain_field(path, part)


def class_name(path: str, name: str) -> Errors:
    if not name:
        yield required(path)
    else:
        yield from subdomain_field(path, name)


def share_id(path: str, value: str) -> Errors:
    if fault := _uuid_fault(value):
        yield invalid(path, value, f"error validating uid: {fault}")
    elif len(value) != 36 or value != value.lower():
        form = "`xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters"
        yield invalid(path, value, f"uid must be in RFC 4122 normalized form, {form}")


def _uuid_fault(value: str) -> str:
    """What the library of upstream says of a text; it reads four forms."""
    match len(value):
        case 36:
            bare = value
        case 45:
            if value[:9].lower() != "urn:uuid:":
                return f'invalid urn prefix: "{value[:9]}"'
            bare = value[9:]
        case 38:
            if value[0] != "{" or value[-1] != "}":
                return "invalid bracketed UUID format"
            bare = value[1:-1]
        case 32:
            return "" if re.fullmatch("[0-9a-fA-F]{32}", value) else "invalid UUID format"
        case length:
            return f"invalid UUID length: {length}"
    return "" if re.fullmatch(_UUID, bare) else "invalid UUID format"


def qualified_name(path: str, name: str) -> Errors:
    """An identifier, with a domain before it or without. One with several slashes is not looked at."""
    domain, *rest = name.split("/")
    if not rest:
        yield from _identifier(path, name)
    elif len(rest) == 1:
        if not domain:
            yield invalid(path, "", "the domain must not be empty")
        else:
            yield from driver_name(path, domain)
        if not rest[0]:
            yield invalid(path, "", "the name must not be empty")
        else:
            yield from _identifier(path, rest[0])


def fully_qualified_name(path: str, name: str) -> Errors:
    yield from qualified_name(path, name)
    if "/" not in name:
        yield invalid(path, name, "a fully qualified name must be a domain and a name separated by a slash")


def _identifier(path: str, name: str) -> Errors:
    if len(name) > IDENTIFIER:
        yield too_long(path, IDENTIFIER)
    yield from each(path, name, c_identifier(name))


class Requests:
    """The names of a claim's requests, and of the alternatives of each."""

    def __init__(self, devices: Mapping[str, Any]) -> None:
        self._names: dict[str, set[str]] = {}
        for request in devices.get("requests") or ():
            self._names[request.get("name", "")] = {one.get("name", "") for one in request.get("firstAvailable") or ()}

    def __contains__(self, name: str) -> bool:
        request, *below = name.split("/")
        alternatives = self._names.get(request)
        return alternatives is not None and (not below or below[0] in alternatives)

    def check(self, path: str, name: str) -> Errors:
        """A reference to one of them."""
        parts = name.split("/")
        if len(parts) > 2:
            yield invalid(path, name, _NO_REQUEST)
            return
        for part in parts:
            yield from label_name_field(path, part)
        if name not in self:
            yield invalid(path, name, _NO_REQUEST)
