"""Pod templates: their comparison, and the short hash in the names of ReplicaSets.

Templates are JSON trees instead of typed structs, so that unknown fields are passed on to pods.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from itertools import groupby
from typing import Any

from kubeloop.meta.kinds import GroupVersionKind
from kubeloop.schema.strict_types import WireField, WireType, wire_types
from kubeloop.types import JSONObject

# The text that upstream's controllers hash for names and labels: the Go struct of the template as go-spew prints it with ``%#v``.
# ``kubeloop.schema.strict_types`` defines order and types of the fields.
# Source: k8s.io/utils/dump (ForHash); k8s.io/apimachinery pkg/api/resource (ParseQuantity: the part of its text that a quantity stores).


#: Names of Go fields that differ from the JSON name with a capital first letter.
_GO_NAMES = {
    **{name: name.upper() for name in ("csi", "fc", "grpc", "ip", "iqn", "iscsi", "nfs", "os", "rbd", "tty", "uid")},
    "apiGroup": "APIGroup", "apiVersion": "APIVersion", "awsElasticBlockStore": "AWSElasticBlockStore", "cephfs": "CephFS",
    "chapAuthDiscovery": "DiscoveryCHAPAuth", "chapAuthSession": "SessionCHAPAuth", "diskURI": "DataDiskURI", "dnsConfig": "DNSConfig",
    "dnsPolicy": "DNSPolicy", "endpoints": "EndpointsName", "fsGroup": "FSGroup", "fsGroupChangePolicy": "FSGroupChangePolicy",
    "fsType": "FSType", "gcePersistentDisk": "GCEPersistentDisk", "gmsaCredentialSpec": "GMSACredentialSpec",
    "gmsaCredentialSpecName": "GMSACredentialSpecName", "httpGet": "HTTPGet", "httpHeaders": "HTTPHeaders",
    "iscsiInterface": "ISCSIInterface", "metadata": "ObjectMeta", "pdName": "PDName", "seLinuxChangePolicy": "SELinuxChangePolicy",
    "seLinuxOptions": "SELinuxOptions", "serviceAccount": "DeprecatedServiceAccount", "sslEnabled": "SSLEnabled",
    "storageos": "StorageOS", "tcpSocket": "TCPSocket", "wwids": "WWIDs",
}  # fmt: skip
#: Names of Go fields that differ only in one struct.
_OF_STRUCTS = {"RBDVolumeSource": {"image": "RBDImage", "monitors": "CephMonitors", "pool": "RBDPool", "user": "RadosUser"}}
_ZERO_TIME = "{Time:(time.Time){wall:(uint64)0 ext:(int64)0 loc:(*time.Location)<nil>}}"
_QUANTITY = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([A-Za-z]*)([-+]?[0-9]*)", re.ASCII)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
#: The number of digits that always fit into 64 bits, and the largest number that fits.
_DIGITS, _LARGEST = 18, 2**63 - 1


def dump_template(template: JSONObject) -> str:
    """Return the text that upstream hashes for a pod template from an API server: go-spew's dump of the Go struct."""
    return _typed(template, _template_type())


@cache
def _template_type() -> int:
    types = wire_types()
    kind = types.kind(GroupVersionKind("", "v1", "PodTemplate"))
    assert kind is not None
    return next(field.type for field in types.type(kind).fields if field.name == "template")


def _typed(value: Any, index: int) -> str:
    """Return the dump of a value with its Go type in front."""
    kind = wire_types().type(index)
    if kind.category == "pointer":
        if value is None:
            return f"({kind.name})<nil>"
        return f"({kind.name}){_untyped(value, wire_types().type(kind.element))}"
    return f"({kind.name}){_untyped(value, kind)}"


def _untyped(value: Any, kind: WireType) -> str:
    """Return the dump of a value without its Go type, as for elements of lists and maps."""
    match kind.category:
        case "struct":
            return _struct(value or {}, kind)
        case "slice" | "map" if not value:
            return "<nil>"  # An API server stores no empty lists and maps.
        case "slice":
            element = wire_types().type(kind.element)
            return f"[{' '.join(_untyped(one, element) for one in value)}]"
        case "map":
            element = wire_types().type(kind.element)
            return f"map[{' '.join(f'{key}:{_untyped(value[key], element)}' for key in sorted(value))}]"
        case "quantity":
            return _quantity(None if value is None else str(value))
        case "intorstring":
            text = isinstance(value, str)
            return f"{{Type:(intstr.Type){int(text)} IntVal:(int32){0 if text else value or 0} StrVal:(string){value if text else ''}}}"
        case "time":
            return _ZERO_TIME
        case "bytes" | "raw":
            return "<nil>"
        case "bool":
            return "true" if value else "false"
        case "string":
            return value or ""
        case _:
            return str(value or 0)


def _struct(value: JSONObject, kind: WireType) -> str:
    names = _GO_NAMES | _OF_STRUCTS.get(kind.struct_name, {})
    return "{" + " ".join(_fields(value, list(kind.fields), "", names)) + "}"


def _fields(value: JSONObject, fields: list[WireField], prefix: str, names: dict[str, str]) -> Iterator[str]:
    """Yield the dump of each field of a struct. The fields of an embedded struct, which JSON does not show, are dumped as one field."""
    for embedded, group in groupby(fields, key=lambda field: field.prefix[len(prefix) :].partition(".")[0]):
        if embedded:
            inner = " ".join(_fields(value, list(group), f"{prefix}{embedded}.", names))
            yield f"{embedded}:(v1.{embedded}){{{inner}}}"
            continue
        for field in group:
            name = names.get(field.name) or field.name[0].upper() + field.name[1:]
            yield f"{name}:{_typed(value.get(field.name), field.type)}"


def _quantity(text: str | None) -> str:
    """Return the dump of a parsed Go quantity: most are an integer and a power of ten, large ones a big decimal."""
    if text is None or text == "0":  # An absent quantity is sent as 0.
        return _printed(0, 0, "0", "DecimalSI")
    result = _QUANTITY.fullmatch(text)
    if result is None:
        raise ValueError(f'"{text}" is not a valid quantity')
    sign, whole, part, suffix, exponent = (group or "" for group in result.groups())
    binary = suffix in _BINARY
    form = "BinarySI" if binary else "DecimalExponent" if exponent else "DecimalSI"
    power = _BINARY[suffix] if binary else int(exponent) if exponent else _DECIMAL[suffix]
    digits = whole + part
    factor = 2**power if binary else 1
    scale = (0 if binary else power) - len(part)
    value = int(digits) * factor
    precision = -1 if binary and part else 14 - len(whole) - power * 3 // 10 if binary else _DIGITS - len(digits)
    if precision < 0 or scale < -9 or value > _LARGEST:
        return _printed_large(Fraction(int(digits) * factor, 10 ** len(part)) * (1 if binary else Fraction(10) ** power), form, sign)
    canonical = int(digits) % 8 != 0 if binary else scale % 3 == 0 and not digits.endswith("000") and digits[0] != "0"
    return _printed(-value if sign == "-" else value, scale, text if canonical else "", form)


def _printed(value: int, scale: int, text: str, form: str, decimal: str = "<nil>") -> str:
    amount = f"i:(resource.int64Amount){{value:(int64){value} scale:(resource.Scale){scale}}}"
    return f"{{{amount} d:(resource.infDecAmount){{Dec:(*inf.Dec){decimal}}} s:(string){text} Format:(resource.Format){form}}}"


def _printed_large(amount: Fraction, form: str, sign: str) -> str:
    """Return the dump of a large Go quantity: nano-units, rounded up, in words of 64 bits."""
    unscaled, scale = -(-amount.numerator * 10**9 // amount.denominator), 9
    if form == "BinarySI" and amount > _LARGEST:
        unscaled, scale = _LARGEST, 0
    if form == "BinarySI" and amount < 1:
        form = "DecimalSI"
    words = []
    while unscaled:
        words.append(str(unscaled & (2**64 - 1)))
        unscaled >>= 64
    number = f"unscaled:(big.Int){{neg:(bool){'true' if sign == '-' else 'false'} abs:(big.nat)[{' '.join(words)}]}}"
    return _printed(0, 0, "", form, f"{{{number} scale:(inf.Scale){scale}}}")


HASH_LABEL = "pod-template-hash"
#: Characters without vowels and digits that look like vowels, so that no words appear (k8s.io/apimachinery pkg/util/rand).
_SAFE = "bcdfghjklmnpqrstvwxz2456789"


def template_hash(template: JSONObject, collision_count: int | None = None) -> str:
    """Return the hash of a template, which equals upstream's, so that either controller can take over the other's ReplicaSets.

    Args:
        template: A pod template from an API server, including defaults.
        collision_count: The collision count in the owner's status; None and 0 are different.
    """
    data = dump_template(template).encode()
    if collision_count is not None:
        data += (collision_count & 0xFFFFFFFF).to_bytes(8, "little")
    digest = 0x811C9DC5
    for byte in data:
        digest = (digest ^ byte) * 0x01000193 & 0xFFFFFFFF
    return safe_encoded(digest)


def safe_encoded(number: int) -> str:
    """Encode the decimal digits of a number in letters and digits that form no words, like upstream's SafeEncodeString."""
    return "".join(_SAFE[ord(digit) % len(_SAFE)] for digit in str(number))


def same_template(left: JSONObject, right: JSONObject) -> bool:
    """Return whether two templates from a server are equal, without regard to the hash label and to nulls."""
    return bool(_bare(left) == _bare(right))


def with_hash(template: JSONObject, value: str) -> JSONObject:
    """Return a copy of a template with the hash label."""
    labelled = copy.deepcopy(template)
    metadata = labelled.get("metadata") or {}
    metadata["labels"] = {**(metadata.get("labels") or {}), HASH_LABEL: value}
    labelled["metadata"] = metadata
    return labelled


def _bare(template: JSONObject) -> JSONObject:
    metadata = dict(template.get("metadata") or {})
    labels = {key: value for key, value in (metadata.get("labels") or {}).items() if key != HASH_LABEL}
    metadata["labels"] = labels
    bare: JSONObject = without_nulls({**template, "metadata": metadata})
    return bare


def without_nulls(node: Any) -> Any:
    """Return a copy of a JSON tree without the keys whose value is null."""
    if isinstance(node, dict):
        return {key: without_nulls(value) for key, value in node.items() if value is not None}
    if isinstance(node, list):
        return [without_nulls(value) for value in node]
    return node
