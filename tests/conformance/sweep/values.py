"""Values for the fields of a kind, valid ones and invalid ones, from the shipped schema and from what fields are called."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from kubeloop.schema import Schemas, TypeSchema

_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"

#: Values of whole definitions.
_OF_DEFINITIONS: dict[str, Any] = {
    _QUANTITY: "1",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": 1,
    _META + "Time": "2030-01-02T03:04:05Z",
    _META + "MicroTime": "2030-01-02T03:04:05.000006Z",
    _META + "LabelSelector": {"matchLabels": {"app": "a"}},
    _META + "ObjectMeta": {"labels": {"app": "a"}},
    "io.k8s.apimachinery.pkg.runtime.RawExtension": {"kind": "Any", "apiVersion": "example.com/v1"},
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps": {"type": "object"},
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON": "a",
}

#: Values of strings, by the end of a field's path; the first that fits.
_STRINGS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(f"(^|\\.){pattern}$"), value)
    for pattern, value in (
        ("image", "example.com/a:1"),
        ("subPath|items.0.path|downwardAPI.*path", "a"),
        ("mountPath|devicePath|path|socketPath|volumePath", "/a"),
        ("apiVersion", "v1"),
        ("kind", "Pod"),
        ("namespace", "$ns"),
        ("expression|rule", "true"),
        ("driver|driverName|attacher|provisioner", "a.example.com"),
        ("signerName", "example.com/a"),
        ("ip|hostIP|podIP|clusterIP|loadBalancerIP|address", "198.51.100.7"),
        ("ips|addresses|clusterIPs|externalIPs|nameservers|podIPs|hostIPs", "198.51.100.7"),
        ("cidr|cidrs|podCIDR|podCIDRs|loadBalancerSourceRanges", "198.51.100.0/24"),
        ("url", "https://192.0.2.1/a"),
        ("schedule", "0 1 * * *"),
        ("timeZone", "Europe/Berlin"),
        ("host|hostname|hostnames", "a.example.com"),
        ("apiGroup|group", "example.com"),
        ("scheme", "HTTP"),
        ("verbs|verb", "get"),
        ("nonResourceURLs", "/a"),
        ("clusterName|name|key|topologyKey|resourceName|secretName|claimName", "a"),
        ("fieldPath", "metadata.name"),
        ("duration", "1s"),
        ("uid", "11111111-2222-3333-4444-555555555555"),
        (".*[vV]ersion.*", "v1"),
    )
)
_NUMBERS: tuple[tuple[re.Pattern[str], int], ...] = tuple(
    (re.compile(f"(^|\\.){pattern}$"), value)
    for pattern, value in (
        ("port|containerPort|targetPort|number", 8080),
        ("hostPort", 8080),
        ("nodePort|healthCheckNodePort", 31000),
        ("weight|percent|averageUtilization", 50),
        ("defaultMode|mode", 420),
        ("endPort", 8090),
        ("maximum|max.*", 5),
    )
)


class Values:
    """Fields of one kind, and values for them."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas

    def fields(self, root: TypeSchema, limit: int) -> list[tuple[tuple[str, ...], TypeSchema]]:
        """The first fields, breadth first, status and metadata left out; ``0`` stands for the first item of a list."""
        found: list[tuple[tuple[str, ...], TypeSchema]] = []
        level: list[tuple[tuple[str, ...], TypeSchema]] = [((), root)]
        while level and len(found) < limit:
            following: list[tuple[tuple[str, ...], TypeSchema]] = []
            for path, node in level:
                for name, child in self._properties(path, node):
                    found.append(((*path, name), child))
                    following.append(((*path, name), child))
            level = following
        return found[:limit]

    def _properties(self, path: tuple[str, ...], node: TypeSchema) -> Iterator[tuple[str, TypeSchema]]:
        if node.ref in _OF_DEFINITIONS or len(path) > 9:
            return
        node = self._schemas.resolve(node)
        if node.is_list and node.items is not None:
            yield from ((f"0.{name}", child) for name, child in self._properties(path, node.items))
        elif node.is_object:
            left_out = ("metadata", "status", "kind", "apiVersion") if not path else ()
            yield from ((name, child) for name, child in sorted(node.properties.items()) if name not in left_out)

    def good(self, path: str, node: TypeSchema, *, everything: bool = True, depth: int = 0, seen: tuple[str, ...] = ()) -> Any:
        """A value that is likely valid. ``everything``: with all fields below, else only those required."""
        if node.ref:
            if node.ref in _OF_DEFINITIONS:
                return _copied(_OF_DEFINITIONS[node.ref])
            if node.ref in seen:
                return None
            seen = (*seen, node.ref)
        real = self._schemas.resolve(node)
        if real.enum:
            return real.enum[-1]
        if real.int_or_string:
            return 1
        if real.is_list and real.items is not None:
            item = self.good(path, real.items, everything=everything, depth=depth + 1, seen=seen)
            return [] if item is None else [item]
        if real.is_map and real.values is not None:
            value = self.good(path + ".*", real.values, everything=everything, depth=depth + 1, seen=seen)
            return {} if value is None else {"memory" if real.values.ref == _QUANTITY else "a": value}
        if real.is_object:
            made = {}
            for name, child in sorted(real.properties.items()):
                if name in real.required or (everything and depth < 5):
                    value = self.good(f"{path}.{name}", child, everything=everything, depth=depth + 1, seen=seen)
                    if value is not None:
                        made[name] = value
            return made
        return _scalar(path, real)

    def bad(self, path: str, node: TypeSchema) -> Any:
        """A value that decodes and is likely invalid; None if there is none."""
        if node.ref == _QUANTITY:
            return "-1"
        if node.ref in _OF_DEFINITIONS and not node.ref.endswith(("LabelSelector", "IntOrString")):
            return None
        if node.ref.endswith("LabelSelector"):
            return {"matchLabels": {"bad key!": "bad value!"}, "matchExpressions": [{"key": "a", "operator": "Bad"}]}
        if node.ref.endswith("IntOrString"):
            return "bad value!"
        real = self._schemas.resolve(node)
        if real.enum or (real.type == "string" and real.format == ""):
            return "Bad Value!"
        if real.type in ("integer", "number"):
            return -1
        if real.is_list and real.items is not None:
            item = self.bad(path, real.items)
            return None if item is None else [item, item]
        if real.is_map and real.values is not None:
            value = self.bad(path, real.values)
            return None if value is None else {"bad key!": value}
        return {} if real.is_object else None


def _scalar(path: str, node: TypeSchema) -> Any:
    if node.type == "boolean":
        return True
    if node.type in ("integer", "number"):
        return next((value for pattern, value in _NUMBERS if pattern.search(path)), 1)
    if node.format == "byte":
        return "YQ=="
    if node.type == "string":
        return next((value for pattern, value in _STRINGS if pattern.search(path)), "a")
    return None


def _copied(value: Any) -> Any:
    return dict(value) if isinstance(value, dict) else value
