"""From a kind to the URL of its objects."""

from __future__ import annotations

from typing import Final

import msgspec

from kubeloop.meta.kinds import GroupVersionKind, GroupVersionResource
from kubeloop.meta.names import dns1123_label
from kubeloop.meta.type_checks import described

#: ``namespace=ALL_NAMESPACES`` of list, watch, until and informers: the objects of all namespaces (``kubectl --all-namespaces``).
ALL_NAMESPACES: Final = "*"


class ResourceMapping(msgspec.Struct, frozen=True):
    """Where objects of a kind live. ``namespaced`` says whether their paths hold a namespace."""

    gvr: GroupVersionResource
    gvk: GroupVersionKind
    namespaced: bool

    @property
    def kind(self) -> str:
        return self.gvk.kind

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The path of one object, or of all objects: those of a namespace if one is given, else of all namespaces.

        Raises:
            ValueError: a name or namespace that would reach another path, a namespace for a cluster-scoped kind, or none for one
                object of a namespaced kind.
        """
        parts = [self.gvr.group_version.path]
        if namespace:
            require_text(namespace, "namespace")
            if not self.namespaced:
                raise ValueError(f'{self.gvk.kind} is cluster-scoped: it has no namespace, "{namespace}" was given')
            fault = namespace_fault(namespace)
            if fault:
                raise ValueError(fault)
            parts += ["namespaces", namespace]
        elif self.namespaced and name:
            raise ValueError(f'a namespace is needed to name one {self.gvk.kind} ("{name}")')
        parts.append(self.gvr.resource)
        if name:
            parts.append(segment(name, "name"))
        if subresource:
            if not name:
                raise ValueError(f'a name is needed for the subresource "{subresource}" of {self.gvr.resource}')
            parts += [segment(part, "subresource") for part in subresource.split("/")]
        return "/".join(parts)


def require_text(given: object, argument: str) -> None:
    """Raises TypeError: it is no text."""
    if not isinstance(given, str):
        raise TypeError(f"{argument}={described(given)}: must be text")


def namespace_fault(namespace: str) -> str:
    """What keeps a text from being a namespace's name, in Kubernetes' words; "" if nothing does."""
    require_text(namespace, "namespace")
    if namespace == ALL_NAMESPACES:
        return 'namespace=ALL_NAMESPACES ("*") names no single namespace; only list, watch, until and informers take all namespaces'
    faults = dns1123_label(namespace)
    return f'namespace "{namespace}": {"; ".join(faults)}' if faults else ""


def segment(value: str, what: str) -> str:
    """A name as one segment of a path, unchanged.

    Raises:
        ValueError: it would not stay one segment (apimachinery pkg/api/validation/path). TypeError: it is no text.
    """
    require_text(value, what)
    if value in ("", ".", "..") or "/" in value or "%" in value:
        raise ValueError(f'{what} "{value}" cannot be used in a path: it must not be empty, ".", "..", or hold "/" or "%"')
    if not value.isascii() or not value.isprintable() or any(one in value for one in ' ?#"<>\\^`{|}'):
        raise ValueError(f'{what} "{value}" cannot be used in a path: it holds characters that no name in Kubernetes has')
    return value
