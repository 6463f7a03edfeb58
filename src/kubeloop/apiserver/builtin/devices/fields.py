"""Rules for fields that device classes, claims and slices share: names, lists, configuration, taints.

Source: pkg/apis/resource/validation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

from kubeloop.apiserver.builtin.pods.volume_plugins import validate_csi_driver_name
from kubeloop.apiserver.validation.formats import check_one_of, each, unsupported, validate_dns_label_field, validate_subdomain_field
from kubeloop.meta.field_error import Errors, FieldError, duplicate, invalid, required, too_long, too_many
from kubeloop.meta.names import c_identifier, label_value, qualified_name
from kubeloop.types import JSONObject

#: Maximum length of a domain, of an identifier, and of both with a slash between them.
DOMAIN, IDENTIFIER = 63, 32
QUALIFIED = DOMAIN + 1 + IDENTIFIER
_POOL = 253
_UUID = "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_NO_REQUEST = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"


def validate_driver_name(path: str, name: str) -> Errors:
    """Validate the name of a driver."""
    return validate_csi_driver_name(path, name)


def validate_pool_name(path: str, name: str) -> Errors:
    """Validate the name of a pool."""
    if not name:
        yield required(path)
        return
    if len(name) > _POOL:
        yield too_long(path, _POOL)
    for part in name.split("/"):
        yield from validate_subdomain_field(path, part)


def validate_class_name(path: str, name: str) -> Errors:
    """Validate the name of a device class."""
    if not name:
        yield required(path)
    else:
        yield from validate_subdomain_field(path, name)


def validate_share_id(path: str, value: str) -> Errors:
    """Validate the ID of a share."""
    if error := _uuid_fault(value):
        yield invalid(path, value, f"error validating uid: {error}")
    elif len(value) != 36 or value != value.lower():
        form = "`xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters"
        yield invalid(path, value, f"uid must be in RFC 4122 normalized form, {form}")


def _uuid_fault(value: str) -> str:
    """Return the error message of upstream's UUID library, which accepts four formats, or an empty text for a valid UUID."""
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


def validate_domain_qualified_name(path: str, name: str) -> Errors:
    """Validate an identifier with or without a domain. A name with several slashes is not checked."""
    domain, *rest = name.split("/")
    if not rest:
        yield from _identifier(path, name)
    elif len(rest) == 1:
        if not domain:
            yield invalid(path, "", "the domain must not be empty")
        else:
            yield from validate_driver_name(path, domain)
        if not rest[0]:
            yield invalid(path, "", "the name must not be empty")
        else:
            yield from _identifier(path, rest[0])


def validate_fully_qualified_name(path: str, name: str) -> Errors:
    """Validate an identifier with a domain."""
    yield from validate_domain_qualified_name(path, name)
    if "/" not in name:
        yield invalid(path, name, "a fully qualified name must be a domain and a name separated by a slash")


def _identifier(path: str, name: str) -> Errors:
    if len(name) > IDENTIFIER:
        yield too_long(path, IDENTIFIER)
    yield from each(path, name, c_identifier(name))


class RequestNames:
    """The names of a claim's requests, and of the alternatives (subrequests) of each."""

    def __init__(self, devices: Mapping[str, Any]) -> None:
        self._names: dict[str, set[str]] = {}
        for request in devices.get("requests") or ():
            self._names[request.get("name", "")] = {one.get("name", "") for one in request.get("firstAvailable") or ()}

    def __contains__(self, name: str) -> bool:
        request, *below = name.split("/")
        alternatives = self._names.get(request)
        return alternatives is not None and (not below or below[0] in alternatives)

    def check(self, path: str, name: str) -> Errors:
        """Check that a reference names one of the requests or subrequests."""
        parts = name.split("/")
        if len(parts) > 2:
            yield invalid(path, name, _NO_REQUEST)
            return
        for part in parts:
            yield from validate_dns_label_field(path, part)
        if name not in self:
            yield invalid(path, name, _NO_REQUEST)


# Lists and maps of limited size, whose items are validated one by one. The items of a list that is too long are not validated.
#
# Source: pkg/apis/resource/validation validateSlice, validateSet, validateMap.


Check = Callable[[str, Any], Iterable[FieldError]]


def validate_items(path: str, items: list[Any] | None, maximum: int | None, check: Check) -> Errors:
    """Validate each item of a list.

    Args:
        path: Path of the list.
        items: The items; None is an empty list.
        maximum: Maximum number of items; None for no limit.
        check: Validates one item.

    Returns:
        The errors.
    """
    items = items or []
    if maximum is not None and len(items) > maximum:
        yield too_many(path, len(items), maximum)
        return
    for index, item in enumerate(items):
        yield from check(f"{path}[{index}]", item)


def validate_unique_items(
    path: str,
    items: list[Any] | None,
    maximum: int | None,
    check: Check,
    key: Callable[[Any], Hashable],
    shown: Callable[[Hashable], Any] = lambda value: value,
) -> Errors:
    """Validate each item of a list, and that keys are unique.

    Args:
        path: Path of the list.
        items: The items; None is an empty list.
        maximum: Maximum number of items; None for no limit.
        check: Validates one item.
        key: Returns the key of an item.
        shown: Converts a key for messages.

    Returns:
        The errors.
    """
    items = items or []
    yield from validate_items(path, items, maximum, check)
    if maximum is not None and len(items) > maximum:
        return
    known: set[Hashable] = set()
    for index, item in enumerate(items):
        this = key(item)
        if this in known:
            yield duplicate(f"{path}[{index}]", shown(this))
        known.add(this)


def validate_mapping(
    path: str, entries: Mapping[str, Any] | None, maximum: int | None, key_length: int, check_key: Check, check: Check
) -> Errors:
    """Validate each entry of a map.

    Args:
        path: Path of the map.
        entries: The entries; None is an empty map.
        maximum: Maximum number of entries; None for no limit.
        key_length: Maximum bytes of a key in paths; longer keys are shortened.
        check_key: Validates a key.
        check: Validates a value.

    Returns:
        The errors.
    """
    entries = entries or {}
    if maximum is not None and len(entries) > maximum:
        yield too_many(path, len(entries), maximum)
        return
    for key, value in entries.items():
        yield from check_key(path, key)
        yield from check(f"{path}[{_shortened(key, key_length)}]", value)


def accept_any(_path: str, _value: Any) -> Errors:
    """Accept any value: a check without errors."""
    return iter(())


def identity_key(value: Hashable) -> Hashable:
    """Return the value: the key of items that are their own keys."""
    return value


def name_key(value: dict[str, Any]) -> Hashable:
    """Return the name of an item: the key of named items."""
    name: str = value.get("name", "")
    return name


def _shortened(text: str, maximum: int) -> str:
    if len(text) <= maximum:
        return text
    left = maximum - len("...")
    return f"{text[: (left + 1) // 2]}...{text[len(text) - left // 2 :]}"


_LONGEST = 10 * 1024
_MOST_CONDITIONS = 4


def validate_configuration(path: str, config: JSONObject, *, stored: bool = False) -> Errors:
    """Validate the opaque configuration of a driver. Parameters that are already stored (``stored``) may be larger."""
    opaque = config.get("opaque")
    if opaque is None:
        yield required(f"{path}.opaque")
        return
    yield from validate_driver_name(f"{path}.opaque.driver", opaque.get("driver", ""))
    yield from validate_raw_object(f"{path}.opaque.parameters", opaque.get("parameters"), stored=stored)


def validate_raw_object(path: str, value: Any, *, stored: bool = False) -> Errors:
    """Validate an object of any content and limited size. An object that is already stored (``stored``) may be larger."""
    if value is None:
        yield required(path)
    elif not stored and len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()) > _LONGEST:
        yield too_long(path, _LONGEST)
    elif not isinstance(value, dict):
        yield invalid(path, "<value omitted>", "must be a valid JSON object")


def validate_label_name(path: str, name: str) -> Errors:
    """Validate a label key."""
    return each(path, name, qualified_name(name))


def check_binding_conditions(path: str, holder: JSONObject) -> Errors:
    """Check that either both lists of binding conditions are set or neither is, and that they have no duplicates."""
    requested, failures = holder.get("bindingConditions") or [], holder.get("bindingFailureConditions") or []
    for field, value in (("bindingConditions", requested), ("bindingFailureConditions", failures)):
        yield from validate_items(f"{path}.{field}", value, _MOST_CONDITIONS, validate_label_name)
    yield from _repeated(f"{path}.bindingConditions", requested)
    known: set[str] = set()
    for index, one in enumerate(failures):
        here = f"{path}.bindingFailureConditions[{index}]"
        if one in known:
            yield duplicate(here, one)
        known.add(one)
        if one in requested:
            yield invalid(here, one, "bindingFailureConditions must not overlap with bindingConditions")
    for field, other in (("bindingConditions", "bindingFailureConditions"), ("bindingFailureConditions", "bindingConditions")):
        if holder.get(other) and not holder.get(field):
            yield invalid(f"{path}.{field}", holder.get(field), f"{field} are required to use {other}")


def _repeated(path: str, value: list[str]) -> Errors:
    known: set[str] = set()
    for index, one in enumerate(value):
        if one in known:
            yield duplicate(f"{path}[{index}]", one)
        known.add(one)


_EFFECTS = ("NoExecute", "NoSchedule", "None")


def validate_taint(path: str, field_value: JSONObject) -> Errors:
    """Validate the taint of a device."""
    value, effect = field_value.get("value", ""), field_value.get("effect", "")
    yield from validate_label_name(f"{path}.key", field_value.get("key", ""))
    yield from each(f"{path}.value", value, label_value(value))
    if not effect:
        yield required(f"{path}.effect")
    else:
        yield from check_one_of(f"{path}.effect", effect, _EFFECTS)


def validate_toleration(path: str, field_value: JSONObject) -> Errors:
    """Validate a toleration of device taints."""
    value, operator = field_value.get("value", ""), field_value.get("operator", "")
    if field_value.get("key"):
        yield from validate_label_name(f"{path}.key", field_value["key"])
    match operator:
        case "Exists":
            if value:
                yield invalid(f"{path}.value", value, "must be empty for operator `Exists`")
        case "Equal":
            yield from each(f"{path}.value", value, label_value(value))
        case "":
            yield required(f"{path}.operator")
        case _:
            yield unsupported(f"{path}.operator", operator, ("Equal", "Exists"))
    if field_value.get("effect"):
        yield from check_one_of(f"{path}.effect", field_value["effect"], _EFFECTS)
