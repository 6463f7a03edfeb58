"""Validates names, labels and annotations. Each function returns the faults in Kubernetes' words; an empty list means valid.

Source: k8s.io/apimachinery pkg/util/validation, pkg/api/validate/content, pkg/api/validation. Lengths are in bytes, as there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

_DNS1123_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS1123_SUBDOMAIN = rf"{_DNS1123_LABEL}(\.{_DNS1123_LABEL})*"
_DNS1035_LABEL = "[a-z]([-a-z0-9]*[a-z0-9])?"
_WILDCARD_SUBDOMAIN = rf"\*\.{_DNS1123_SUBDOMAIN}"
_LABEL_KEY = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = f"({_LABEL_KEY})?"
_C_IDENTIFIER = "[A-Za-z_][A-Za-z0-9_]*"
_CONFIG_KEY = "[-._a-zA-Z0-9]+"
_ENVIRONMENT_NAME = "[-._a-zA-Z][-._a-zA-Z0-9]*"
_HEADER_NAME = "[-A-Za-z0-9]+"
_PERCENT = "[0-9]+%"
#: Keys up to this length are cached.
_SHORT = 128
_HTTP_PATH = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"

ANNOTATIONS_LIMIT = 256 * 1024
"""Limit of all annotations of an object together, keys and values, in bytes."""


def too_long(limit: int) -> str:
    return f"must be no more than {limit} characters"


def out_of_range(low: int, high: int) -> str:
    return f"must be between {low} and {high}, inclusive"


def wrong_pattern(rule: str, pattern: str, *examples: str) -> str:
    """Format ``rule``, examples and the pattern like Kubernetes' messages about patterns."""
    if not examples:
        return f"{rule} (regex used for validation is '{pattern}')"
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{rule} (e.g. {shown}regex used for validation is '{pattern}')"


def dns1123_label(name: str, prefix: bool = False) -> list[str]:
    """Validate a DNS label. ``prefix``: it is a ``generateName`` to which a suffix will be added, so a dash may end it."""
    name = _masked(name) if prefix else name
    faults = _length(name, 63)
    if not _matches(_DNS1123_LABEL, name):
        if _matches(_DNS1123_SUBDOMAIN, name):
            faults.append("must not contain dots")
        else:
            rule = (
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
                "and must start and end with an alphanumeric character"
            )
            faults.append(wrong_pattern(rule, _DNS1123_LABEL, "my-name", "123-abc"))
    return faults


def dns1123_subdomain(name: str, prefix: bool = False) -> list[str]:
    name = _masked(name) if prefix else name
    rule = (
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
        "and must start and end with an alphanumeric character"
    )
    return _length(name, 253) + _pattern(_DNS1123_SUBDOMAIN, name, rule, "example.com")


def dns1035_label(name: str, prefix: bool = False) -> list[str]:
    name = _masked(name) if prefix else name
    rule = (
        "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
        "and end with an alphanumeric character"
    )
    return _length(name, 63) + _pattern(_DNS1035_LABEL, name, rule, "my-name", "abc-123")


def wildcard_dns1123_subdomain(name: str) -> list[str]:
    rule = (
        "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of "
        "lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character"
    )
    return _length(name, 253) + _pattern(_WILDCARD_SUBDOMAIN, name, rule, "*.example.com")


def path_segment(name: str, prefix: bool = False) -> list[str]:
    """Validate a name that only has to fit into a URL path (RBAC roles and bindings)."""
    if not prefix and name in {".", ".."}:
        return [f"may not be '{name}'"]
    return [f"may not contain '{character}'" for character in "/%" if character in name]


def qualified_name(name: str) -> list[str]:
    """Validate a label key, a finalizer or a resource name: an optional DNS subdomain and a slash, then up to 63 characters."""
    return list(_remembered_key(name)) if len(name) <= _SHORT else _qualified_name(name)


@lru_cache(maxsize=2048)
def _remembered_key(name: str) -> tuple[str, ...]:
    """Return the faults of a short key; cached, because most objects contain the same few keys."""
    return tuple(_qualified_name(name))


def _qualified_name(name: str) -> list[str]:
    rule = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
    explained = wrong_pattern(rule, _LABEL_KEY, "MyName", "my.name", "123-abc")
    parts = name.split("/")
    if len(parts) > 2:
        return [f"a valid label key {explained} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"]
    faults = []
    if len(parts) == 2:
        faults = (
            [fault.replace("253 characters", "253 bytes") for fault in dns1123_subdomain(parts[0])] if parts[0] else ["must be non-empty"]
        )
        faults = [f"prefix part {fault}" for fault in faults]
    last = parts[-1]
    if not last:
        faults.append("name part must be non-empty")
    else:
        faults += [f"name part {fault}" for fault in _length(last, 63, "bytes")]
    if not _matches(_LABEL_KEY, last):
        faults.append(f"name part {explained}")
    return faults


def label_value(value: str) -> list[str]:
    rule = (
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
        "and must start and end with an alphanumeric character"
    )
    return _length(value, 63, "bytes") + _pattern(_LABEL_VALUE, value, rule, "MyValue", "my_value", "12345")


def annotation_key(key: str) -> list[str]:
    """Validate an annotation key: a label key in which upper and lower case count the same."""
    return qualified_name(key.lower())


def annotations_size(annotations: Mapping[str, str]) -> int:
    """Return the bytes that count against ``ANNOTATIONS_LIMIT``."""
    return sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())


def config_key(key: str) -> list[str]:
    """Validate a key of a ConfigMap or Secret, which becomes a file name."""
    rule = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
    return _length(key, 253) + _pattern(_CONFIG_KEY, key, rule, "key.name", "KEY_NAME", "key-name") + _dots(key)


def environment_name(name: str) -> list[str]:
    """Validate the name of an environment variable by the strict rule, which applies to keys of ConfigMaps and Secrets (``envFrom``)."""
    rule = (
        "a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or '.', and must not start with a digit"
    )
    return _pattern(_ENVIRONMENT_NAME, name, rule, "my.env-name", "MY_ENV.NAME", "MyEnvName1") + _dots(name)


def relaxed_environment_name(name: str) -> list[str]:
    """Validate a name in a container's ``env`` by the rule since 1.34: printable ASCII without an equals sign."""
    faults = [] if name else ["environment variable name must be non-empty"]
    if any(not " " <= character <= "~" or character == "=" for character in name):
        faults.append("a valid environment variable name must consist only of printable ASCII characters other than '='")
    return faults


def port_name(name: str) -> list[str]:
    """Validate an IANA service name (RFC 6335) in lower case."""
    faults = _length(name, 15)
    if not _matches("[-a-z0-9]+", name):
        faults.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search("[a-z]", name):
        faults.append("must contain at least one letter (a-z)")
    if "--" in name:
        faults.append("must not contain consecutive hyphens")
    if name.startswith("-") or name.endswith("-"):
        faults.append("must not begin or end with a hyphen")
    return faults


def port_number(port: int) -> list[str]:
    return in_range(port, 1, 65535)


def in_range(value: int, low: int, high: int) -> list[str]:
    return [] if low <= value <= high else [out_of_range(low, high)]


def percent(text: str) -> list[str]:
    rule = "a valid percent string must be a numeric string followed by an ending '%'"
    return _pattern(_PERCENT, text, rule, "1%", "93%")


def http_header_name(name: str) -> list[str]:
    return _pattern(_HEADER_NAME, name, "a valid HTTP header must consist of alphanumeric characters or '-'", "X-Header-Name")


def http_path(path: str) -> list[str]:
    return _pattern(_HTTP_PATH, path, "Invalid path")


def c_identifier(name: str) -> list[str]:
    rule = "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_'"
    return _pattern(_C_IDENTIFIER, name, rule, "my_name", "MY_NAME", "MyName")


def _masked(name: str) -> str:
    """Replace a dash at the end, and the character before it, by one ``a``, as upstream does. The length of the name shrinks by one."""
    return f"{name[:-2]}a" if len(name) > 1 and name.endswith("-") else name


def _length(text: str, limit: int, unit: str = "characters") -> list[str]:
    """Check the length in bytes, whatever upstream calls them: "bytes" for labels and "characters" for names."""
    return [f"must be no more than {limit} {unit}"] if len(text.encode()) > limit else []


def _pattern(pattern: str, text: str, rule: str, *examples: str) -> list[str]:
    return [] if _matches(pattern, text) else [wrong_pattern(rule, pattern, *examples)]


def _matches(pattern: str, text: str) -> bool:
    return re.fullmatch(pattern, text, re.ASCII) is not None


def _dots(name: str) -> list[str]:
    if name in {".", ".."}:
        return [f"must not be '{name}'"]
    return ["must not start with '..'"] if name.startswith("..") else []
