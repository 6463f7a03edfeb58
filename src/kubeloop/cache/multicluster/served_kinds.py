"""Which custom kinds a CustomResourceDefinition serves, read from its head: schemas are never decoded or kept. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kubeloop.cache.blobs.head import Head
from kubeloop.meta import Unstructured
from kubeloop.meta.kinds import GroupVersionKind

_GROUP, _SCOPE = "spec.group", "spec.scope"
_PLURAL, _KIND = "status.acceptedNames.plural", "status.acceptedNames.kind"
_NAMES, _SERVED, _STORED = "spec.versions[*].name", "spec.versions[*].served", "spec.versions[*].storage"
_CONDITIONS, _STATES = "status.conditions[*].type", "status.conditions[*].status"

#: What an informer of definitions must read.
PATHS = (_GROUP, _SCOPE, _PLURAL, _KIND, _NAMES, _SERVED, _STORED, _CONDITIONS, _STATES)

_VERSION = re.compile(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?")


@dataclass(frozen=True, slots=True)
class ServedKind:
    """A custom kind, in the version to read it in: all versions show the same objects."""

    gvk: GroupVersionKind
    plural: str
    namespaced: bool

    @property
    def resource_class(self) -> type[Unstructured]:
        group = f"{self.gvk.group}/" if self.gvk.group else ""
        return Unstructured.of(f"{group}{self.gvk.version}", self.gvk.kind, plural=self.plural, namespaced=self.namespaced)


def served_kind(definition: Head) -> ServedKind | None:
    """What a definition serves now; None: nothing (not established yet, or no version is served).

    The version is the one that is stored, which costs the server no conversion, or else the served one of the highest priority.
    """
    conditions = dict(zip(definition.value(_CONDITIONS), definition.value(_STATES), strict=False))
    if conditions.get("Established") != "True":
        return None
    names, served, stored = (definition.value(path) for path in (_NAMES, _SERVED, _STORED))
    versions = [(name, at_rest) for name, on, at_rest in zip(names, served, stored, strict=False) if on is True]
    kind, plural = definition.value(_KIND), definition.value(_PLURAL)
    if not versions or not kind or not plural:
        return None
    version = next((name for name, at_rest in versions if at_rest is True), None) or max((name for name, _ in versions), key=priority)
    return ServedKind(GroupVersionKind(definition.value(_GROUP), version, kind), plural, definition.value(_SCOPE) == "Namespaced")


def priority(version: str) -> tuple[int, int, int, str]:
    """Orders versions as Kubernetes does: v2 before v1, v1 before v1beta2, before v1beta1, before v1alpha1, before all other names.

    Source: Kubernetes, "Versions in CustomResourceDefinitions", version priority.
    """
    found = _VERSION.fullmatch(version)
    if found is None:
        # Other names are ordered from a to z, the first one first.
        return (0, 0, 0, "".join(chr(0x10FFFF - ord(letter)) for letter in version) + chr(0x10FFFF))
    major, stage, minor = found.groups()
    return ({"alpha": 1, "beta": 2, None: 3}[stage], int(major), int(minor or 0), "")
