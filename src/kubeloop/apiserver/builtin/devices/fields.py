"""Rules for fields that device classes, claims and slices share: names, lists, configuration, taints.

Source: pkg/apis/resource/validation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

from kubeloop.apiserver.builtin.pods.volume_plugins import csi_driver_name
from kubeloop.apiserver.validation.formats import each, label_name_field, one_of, subdomain_field, unsupported
from kubeloop.meta.field_error import Errors, FieldError, duplicate, invalid, required, too_long, too_many
from kubeloop.meta.names import c_identifier, label_value, qualified_name
from kubeloop.types import JSONObject

#: Maximum length of a domain, of an identifier, and of both with a slash between them.
DOMAIN, IDENTIFIER = 63, 32
QUALIFIED = DOMAIN + 1 + IDENTIFIER
_POOL = 253
_UUID = "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_NO_REQUEST = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"


def driver_name(path: str, name: str) -> Errors:
    """Validate the name of a driver."""
    return csi_driver_name(path, name)


def pool_name(path: str, name: str) -> Errors:
    """Validate the name of a pool."""
    if not name:
        yield required(path)
        return
    if len(name) > _POOL:
        yield too_long(path, _POOL)
    for part in name.split("/"):
        yield from subdomain_field(path, part)


def class_name(path: str, name: str) -> Errors:
    """Validate the name of a device class."""
    if not name:
        yield required(path)
    else:
        yield from subdomain_field(path, name)


def share_id(path: str, value: str) -> Errors:
    """Validate the ID of a share."""
    if fault := _uuid_fault(value):
        yield invalid(path, value, f"error validating uid: {fault}")
    elif len(value) != 36 or value != value.lower():
        form = "`xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters"
        yield invalid(path, value, f"uid must be in RFC 4122 normalized form, {form}")


def _uuid_fault(value: str) -> str:
    """Return the message of upstream's UUID library, which accepts four formats; empty for a valid UUID."""
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


def domain_qualified_name(path: str, name: str) -> Errors:
    """Validate an identifier with or without a domain. A name with several slashes is not checked."""
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
    """Validate an identifier with a domain."""
    yield from domain_qualified_name(path, name)
    if "/" not in name:
        yield invalid(path, name, "a fully qualified name must be a domain and a name separated by a slash")


def _identifier(path: str, name: str) -> Errors:
    if len(name) > IDENTIFIER:
        yield too_long(path, IDENTIFIER)
    yield from each(path, name, c_identifier(name))


class Requests:
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
        """Check that a reference names one of them."""
        parts = name.split("/")
        if len(parts) > 2:
            yield invalid(path, name, _NO_REQUEST)
            return
        for part in parts:
            yield from label_name_field(path, part)
        if name not in self:
            yield invalid(path, name, _NO_REQUEST)


# Lists and maps of limited size, whose items are validated one by one. The items of a list that is too long are not validated.
#
# Source: pkg/apis/resource/validation validateSlice, validateSet, validateMap.


Check = Callable[[str, Any], Iterable[FieldError]]


def items(path: str, found: list[Any] | None, most: int | None, check: Check) -> Errors:
    """Validate each item of a list.

    Args:
        path: Path of the list.
        found: The items; None is an empty list.
        most: Maximum number of items; None for no limit.
        check: Validates one item.

    Returns:
        The errors.
    """
    found = found or []
    if most is not None and len(found) > most:
        yield too_many(path, len(found), most)
        return
    for at, item in enumerate(found):
        yield from check(f"{path}[{at}]", item)


def unique(
    path: str,
    found: list[Any] | None,
    most: int | None,
    check: Check,
    key: Callable[[Any], Hashable],
    shown: Callable[[Hashable], Any] = lambda one: one,
) -> Errors:
    """Validate each item of a list, and that keys are unique.

    Args:
        path: Path of the list.
        found: The items; None is an empty list.
        most: Maximum number of items; None for no limit.
        check: Validates one item.
        key: Returns the key of an item.
        shown: Converts a key for messages.

    Returns:
        The errors.
    """
    found = found or []
    yield from items(path, found, most, check)
    if most is not None and len(found) > most:
        return
    known: set[Hashable] = set()
    for at, item in enumerate(found):
        this = key(item)
        if this in known:
            yield duplicate(f"{path}[{at}]", shown(this))
        known.add(this)


def mapping(path: str, found: Mapping[str, Any] | None, most: int | None, key_length: int, check_key: Check, check: Check) -> Errors:
    """Validate each entry of a map.

    Args:
        path: Path of the map.
        found: The entries; None is an empty map.
        most: Maximum number of entries; None for no limit.
        key_length: Maximum bytes of a key in paths; longer keys are shortened.
        check_key: Validates a key.
        check: Validates a value.

    Returns:
        The errors.
    """
    found = found or {}
    if most is not None and len(found) > most:
        yield too_many(path, len(found), most)
        return
    for key, value in found.items():
        yield from check_key(path, key)
        yield from check(f"{path}[{_shortened(key, key_length)}]", value)


def nothing(_path: str, _value: Any) -> Errors:
    """Accept any value: a check without errors."""
    return iter(())


def itself(value: Hashable) -> Hashable:
    """Return the value: the key of items that are their own keys."""
    return value


def named(value: dict[str, Any]) -> Hashable:
    """Return the name of an item: the key of named items."""
    name: str = value.get("name", "")
    return name


def _shortened(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    left = most - len("...")
    return f"{text[: (left + 1) // 2]}...{text[len(text) - left // 2 :]}"


_LONGEST = 10 * 1024
_MOST_CONDITIONS = 4


def configuration(path: str, config: JSONObject, *, stored: bool = False) -> Errors:
    """Validate the opaque configuration of a driver."""
    opaque = config.get("opaque")
    if opaque is None:
        yield required(f"{path}.opaque")
        return
    yield from driver_name(f"{path}.opaque.driver", opaque.get("driver", ""))
    yield from raw_object(f"{path}.opaque.parameters", opaque.get("parameters"), stored=stored)


def raw_object(path: str, value: Any, *, stored: bool = False) -> Errors:
    """Validate an object of any content and limited size. An object that is ``stored`` already may be larger."""
    if value is None:
        yield required(path)
    elif not stored and len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()) > _LONGEST:
        yield too_long(path, _LONGEST)
    elif not isinstance(value, dict):
        yield invalid(path, "<value omitted>", "must be a valid JSON object")


def label_name(path: str, name: str) -> Errors:
    """Validate a label key."""
    return each(path, name, qualified_name(name))


def binding_conditions(path: str, holder: JSONObject) -> Errors:
    """Check that both lists of binding conditions are set or none, and that they have no duplicates."""
    wanted, failures = holder.get("bindingConditions") or [], holder.get("bindingFailureConditions") or []
    for field, found in (("bindingConditions", wanted), ("bindingFailureConditions", failures)):
        yield from items(f"{path}.{field}", found, _MOST_CONDITIONS, label_name)
    yield from _repeated(f"{path}.bindingConditions", wanted)
    known: set[str] = set()
    for at, one in enumerate(failures):
        here = f"{path}.bindingFailureConditions[{at}]"
        if one in known:
            yield duplicate(here, one)
        known.add(one)
        if one in wanted:
            yield invalid(here, one, "bindingFailureConditions must not overlap with bindingConditions")
    for field, other in (("bindingConditions", "bindingFailureConditions"), ("bindingFailureConditions", "bindingConditions")):
        if holder.get(other) and not holder.get(field):
            yield invalid(f"{path}.{field}", holder.get(field), f"{field} are required to use {other}")


def _repeated(path: str, found: list[str]) -> Errors:
    known: set[str] = set()
    for at, one in enumerate(found):
        if one in known:
            yield duplicate(f"{path}[{at}]", one)
        known.add(one)


_EFFECTS = ("NoExecute", "NoSchedule", "None")


def taint(path: str, found: JSONObject) -> Errors:
    """Validate the taint of a device."""
    value, effect = found.get("value", ""), found.get("effect", "")
    yield from label_name(f"{path}.key", found.get("key", ""))
    yield from each(f"{path}.value", value, label_value(value))
    if not effect:
        yield required(f"{path}.effect")
    else:
        yield from one_of(f"{path}.effect", effect, _EFFECTS)


def toleration(path: str, found: JSONObject) -> Errors:
    """Validate a toleration of device taints."""
    value, operator = found.get("value", ""), found.get("operator", "")
    if found.get("key"):
        yield from label_name(f"{path}.key", found["key"])
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
    if found.get("effect"):
        yield from one_of(f"{path}.effect", found["effect"], _EFFECTS)
