"""Derives Python names of modules, classes and fields from names of the API, without clashes for any input."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterable
from typing import NamedTuple

from kubeloop.meta.resource import Resource

_VERSION = re.compile(r"^v\d+((alpha|beta)\d+)?$")
#: A lower case letter or digit before an upper case one; the end of a run of upper case letters, unless a plural "s" ends it (podIPs).
_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=V\d)|(?<=[A-Z])(?=[A-Z][a-z])(?![A-Z]s(?:[A-Z]|$))")
#: Names that annotations and defaults in a class body use; a field of that name would hide them.
_HIDING = {"bool", "bytes", "dict", "float", "int", "list", "msgspec", "str"}
#: Attributes of ``Resource`` that no field may replace.
_TAKEN = {name for name in dir(Resource) if not name.startswith("_")} - {"api_version", "kind", "metadata"}


class ModuleName(NamedTuple):
    """A module below the generated package: ``("core", "v1")``, or ``("version",)`` for definitions without a group version."""

    package: str
    version: str

    @property
    def parts(self) -> tuple[str, ...]:
        return (self.package, self.version) if self.version else (self.package,)


def snake_case(name: str) -> str:
    """Convert a wire name to snake case, such as ``podIPs`` to ``pod_ips`` and ``openAPIV3Schema`` to ``open_api_v3_schema``."""
    return re.sub(r"\W+", "_", _BOUNDARY.sub("_", name)).strip("_").lower()


def field_name(wire: str) -> str:
    """Return the attribute for a wire name; keywords and names that would hide a builtin get a trailing underscore."""
    name = snake_case(wire) or "field"
    if name[0].isdigit():
        name = f"field_{name}"
    return f"{name}_" if keyword.iskeyword(name) or name in _HIDING or name in _TAKEN else name


def field_names(wires: Iterable[str]) -> dict[str, str]:
    """Return the attribute names of a definition's fields by wire name. Clashing names (``fooBar``, ``foo_bar``) get more underscores."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for wire in sorted(wires):
        name = field_name(wire)
        while name in taken:
            name += "_"
        taken.add(name)
        names[wire] = name
    return names


def camel_case(name: str) -> str:
    """Convert an attribute name as msgspec's ``rename="camel"`` does; fields with another wire name must declare it."""
    first, *rest = name.strip("_").split("_")
    return name[: len(name) - len(name.lstrip("_"))] + first + "".join(part.title() for part in rest)


def class_name(definition: str) -> str:
    """Return the class name of a definition: the last segment of its name, with an underscore after a keyword or the name of a builtin."""
    name = re.sub(r"\W+", "_", definition.rpartition(".")[2])
    return f"{name}_" if keyword.iskeyword(name) or name in dir(builtins) else name


def module_names(definitions: Iterable[str]) -> dict[str, ModuleName]:
    """Return the module of each definition.

    The segment before the version names the package: ``io.k8s.api.rbac.v1.Role`` is ``rbac.v1.Role``. If two prefixes have the same end
    (``io.k8s.api.apps``, ``com.example.apps``), that of ``io.k8s`` uses it and others use all their segments: ``com_example_apps``.
    """
    prefixes = {definition: _split(definition) for definition in definitions}
    owners: dict[str, set[str]] = {}
    for prefix, _ in prefixes.values():
        owners.setdefault(_package(prefix), set()).add(prefix)
    modules: dict[str, ModuleName] = {}
    for definition, (prefix, version) in prefixes.items():
        alone = len(owners[_package(prefix)]) == 1 or _is_kubernetes(prefix, owners[_package(prefix)])
        package = _package(prefix) if alone else re.sub(r"\W+", "_", prefix)
        modules[definition] = ModuleName(f"{package}_" if keyword.iskeyword(package) else package, version)
    return modules


def _split(definition: str) -> tuple[str, str]:
    prefix, _, last = definition.rpartition(".")[0].rpartition(".")
    return (prefix, last) if _VERSION.match(last) else (f"{prefix}.{last}" if prefix else last, "")


def _package(prefix: str) -> str:
    return re.sub(r"\W+", "_", prefix.rpartition(".")[2]) or "models"


def _is_kubernetes(prefix: str, owners: set[str]) -> bool:
    return prefix.startswith("io.k8s.") and sum(owner.startswith("io.k8s.") for owner in owners) == 1
