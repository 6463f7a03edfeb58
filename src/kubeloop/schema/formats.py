"""String formats of custom resource schemas, checked as the Kubernetes API server checks them.

Other formats are ignored, as by the server. Source: apiextensions-apiserver's list of supported formats, kube-openapi strfmt.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable
from datetime import date
from email.utils import parseaddr
from urllib.parse import urlsplit

from kubeloop.meta.strconv import decimal

_LETTER = r"[^\W\d_]"
_HOST = re.compile(rf"(?:[0-9]|{_LETTER})(?:(?:[0-9-]|{_LETTER}){{0,61}}(?:[0-9]|{_LETTER}))?")
_TIME = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|[+-][0-9]{2}:[0-9]{2})")
_GO_DURATION = re.compile(r"[+-]?(?:0|(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:ns|us|µs|μs|ms|s|m|h))+)")
_WORD_DURATION = re.compile(r"(\d+)\s*([A-Za-zµ]+)", re.ASCII)
_UNIT_PREFIXES = ("nano", "micro", "milli", "sec", "min", "hour", "hr", "day", "week", "wk")
_UNITS = {"ns", "us", "µs", "ms", "s", "m", "h", "d", "w"}
_SHORT_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_LONG_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_CARD = re.compile(
    r"4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}"
    r"|(?:2131|1800|35[0-9]{3})[0-9]{11}"
)
_RGB = re.compile(r"rgb\(\s*([0-9]{1,3})\s*,\s*([0-9]{1,3})\s*,\s*([0-9]{1,3})\s*\)")


def _date_time(text: str) -> bool:
    day, t, clock = text.lower().partition("t")
    match = _TIME.fullmatch(clock)
    return bool(t and _date(day) and match and match[1] <= "23" and match[2] <= "59" and match[3] <= "59")


def _date(text: str) -> bool:
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _duration(text: str) -> bool:
    if _GO_DURATION.fullmatch(text):
        return True
    units = [found[2].lower() for found in _WORD_DURATION.finditer(text)]
    return any(unit in _UNITS or unit.startswith(_UNIT_PREFIXES) for unit in units)


def _hostname(text: str) -> bool:
    labels = text.split(".")
    if len(text) > 255 or not all(_HOST.fullmatch(label) for label in labels):
        return False
    return len(labels) == 1 or re.fullmatch(rf"(?:{_LETTER}){{2,63}}", labels[-1]) is not None


def _email(text: str) -> bool:
    _, address = parseaddr(text)
    local, at, domain = address.rpartition("@")
    return bool(at and local and domain and " " not in address)


def _uri(text: str) -> bool:
    if not text or any(ord(character) < 0x21 or character == "\x7f" for character in text):
        return False
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return text.startswith("/") or bool(parts.scheme)


def _ip(version: int) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        # Go's lenient parser reads octets with leading zeros as decimal.
        plain = ".".join(part.lstrip("0") or "0" if part.isdigit() else part for part in text.split(".")) if version == 4 else text
        try:
            return ipaddress.ip_address(plain).version == version and "%" not in text
        except ValueError:
            return False

    return check


def _cidr(text: str) -> bool:
    address, slash, bits = text.partition("/")
    length = decimal(bits, signed=False)
    if not slash or length is None:
        return False
    for version, most in ((4, 32), (6, 128)):
        if _ip(version)(address):
            return length <= most
    return False


def _mac(text: str) -> bool:
    pairs = re.fullmatch(r"[0-9A-Fa-f]{2}([:-])(?:[0-9A-Fa-f]{2}\1)*[0-9A-Fa-f]{2}", text)
    if pairs:
        return len(re.findall(r"[0-9A-Fa-f]{2}", text)) in (6, 8, 20)
    dots = re.fullmatch(r"[0-9A-Fa-f]{4}(?:\.[0-9A-Fa-f]{4})+", text)
    return dots is not None and text.count(".") in (2, 3, 9)


def _uuid(version: str = "") -> Callable[[str], bool]:
    third = f"{version}[0-9a-f]{{3}}" if version else "[0-9a-f]{4}"
    fourth = "[89ab][0-9a-f]{3}" if version in ("4", "5") else "[0-9a-f]{4}"
    pattern = re.compile(rf"[0-9a-f]{{8}}-?[0-9a-f]{{4}}-?{third}-?{fourth}-?[0-9a-f]{{12}}", re.IGNORECASE | re.ASCII)
    return lambda text: pattern.fullmatch(text) is not None


def _isbn(text: str) -> str:
    return text.replace("-", "").replace(" ", "")


def _isbn10(text: str) -> bool:
    digits = _isbn(text)
    if not re.fullmatch(r"[0-9]{9}[0-9X]", digits):
        return False
    return sum((place + 1) * (10 if digit == "X" else int(digit)) for place, digit in enumerate(digits)) % 11 == 0


def _isbn13(text: str) -> bool:
    digits = _isbn(text)
    if not re.fullmatch(r"[0-9]{13}", digits):
        return False
    return sum((3 if place % 2 else 1) * int(digit) for place, digit in enumerate(digits)) % 10 == 0


def _credit_card(text: str) -> bool:
    digits = re.sub(r"[^0-9]+", "", text)
    if not _CARD.fullmatch(digits):
        return False
    doubled = [int(digit) * (2 if place % 2 else 1) for place, digit in enumerate(reversed(digits))]
    return sum(number - 9 if number > 9 else number for number in doubled) % 10 == 0


def _byte(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return bool(text)


def _rgb(text: str) -> bool:
    match = _RGB.fullmatch(text)
    return match is not None and all(int(part) <= 255 for part in match.groups())


def _matches(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern, re.ASCII)
    return lambda text: compiled.fullmatch(text) is not None


#: Formats by name without dashes: ``date-time`` and ``datetime`` are one format.
_CHECKS: dict[str, Callable[[str], bool]] = {
    "bsonobjectid": _matches(r"[0-9a-fA-F]{24}"),
    "uri": _uri,
    "email": _email,
    "hostname": _hostname,
    "ipv4": _ip(4),
    "ipv6": _ip(6),
    "cidr": _cidr,
    "mac": _mac,
    "uuid": _uuid(),
    "uuid3": _uuid("3"),
    "uuid4": _uuid("4"),
    "uuid5": _uuid("5"),
    "isbn": lambda text: _isbn10(text) or _isbn13(text),
    "isbn10": _isbn10,
    "isbn13": _isbn13,
    "creditcard": _credit_card,
    "ssn": _matches(r"[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}"),
    "hexcolor": _matches(r"#?(?:[0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "rgbcolor": _rgb,
    "byte": _byte,
    "password": lambda _: True,
    "date": _date,
    "duration": _duration,
    "datetime": _date_time,
    "k8sshortname": lambda text: len(text) <= 63 and _SHORT_NAME.fullmatch(text) is not None,
    "k8slongname": lambda text: len(text) <= 253 and _LONG_NAME.fullmatch(text) is not None,
}
_NUMBERS = {"integer": ("int32", "int64"), "number": ("float", "double")}


def is_recognised(type_: str, format_: str) -> bool:
    """Return whether a schema of this type may use the format. Kubernetes ignores other formats, and warns at each write of the CRD."""
    if type_ in ("", "string"):
        return format_.replace("-", "") in _CHECKS
    return format_ in _NUMBERS.get(type_, ())


def matches(format_: str, text: str) -> bool:
    """Return whether ``text`` has the format; true for unknown formats."""
    check = _CHECKS.get(format_.replace("-", ""))
    return check is None or check(text)
