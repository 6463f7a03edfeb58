"""Subresources as discovery shows them: their kind, which may be another group's, and their verbs."""

from __future__ import annotations

from functools import cache
from typing import Final

from kubeloop.apiserver.resource import ServedResource
from kubeloop.meta.kinds import GroupVersionKind, GroupVersionResource
from kubeloop.schema import SubresourceInfo, builtin

_VERBS: Final = ("get", "patch", "update")
_SCALE: Final = GroupVersionKind("autoscaling", "v1", "Scale")


@cache
def _builtin() -> dict[GroupVersionResource, tuple[SubresourceInfo, ...]]:
    return {info.gvr: info.subresources for info in builtin().resources()}


def subresources_of(resource: ServedResource) -> tuple[SubresourceInfo, ...]:
    """In discovery's order. Subresources that the resource does not serve are left out."""
    if resource.custom:
        return tuple(
            SubresourceInfo(name=name, kind=_SCALE if name == "scale" else resource.gvk, verbs=_VERBS) for name in resource.subresources
        )
    return tuple(one for one in _builtin().get(resource.gvr, ()) if one.name in resource.subresources)
