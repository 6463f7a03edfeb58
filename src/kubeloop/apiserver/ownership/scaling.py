"""Owners of replicas between an object and its ``/scale``: what the object's managers own of it, as managers of a Scale, and back.

Source: k8s.io/apimachinery pkg/util/managedfields/scalehandler.go. As upstream, an owner that comes back from a Scale has lost its time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubeloop.apiserver.ownership.entries import Managed, decode, encode
from kubeloop.apiserver.ownership.scopes import SCALE
from kubeloop.merge.fields import FieldSet, Path
from kubeloop.merge.fields.managing import VersionedSet
from kubeloop.types import JSONObject

#: API version to the path of replicas in it; None for a version without a scale.
Replicas = Mapping[str, Path | None]

_REPLICAS: Final[Path] = ("f:spec", "f:replicas")


def to_scale(entries: list[JSONObject] | None, replicas: Replicas) -> list[JSONObject]:
    """The managedFields of an object's Scale.

    Raises:
        InvalidEntries
    """
    managed, found = decode(entries), Managed()
    for manager, owned in managed.fields.items():
        path = replicas.get(owned.api_version)
        if path is not None and path in owned.set:
            found.fields[manager] = VersionedSet(FieldSet.of(_REPLICAS), SCALE.api_version, owned.applied)
            found.times[manager] = managed.times.get(manager)
    return encode(found)


def to_parent(
    entries: list[JSONObject] | None, scale_entries: list[JSONObject] | None, replicas: Replicas, api_version: str
) -> list[JSONObject]:
    """The object's managedFields, whose own were ``entries``, after its Scale was written; ``api_version`` is the request's.

    Raises:
        InvalidEntries
    """
    managed, scale, found = decode(entries), decode(scale_entries).fields, Managed()
    for manager, owned in managed.fields.items():
        if owned.api_version not in replicas:
            continue  # a version that is no more
        path = replicas[owned.api_version]
        if path is None or path not in owned.set or scale.pop(manager, None) is not None:
            kept = owned
        else:
            kept = owned._replace(set=owned.set - FieldSet.of(path))
            if not kept.set:
                continue
        found.fields[manager], found.times[manager] = kept, managed.times.get(manager)
    path = replicas.get(api_version)
    for manager, owned in scale.items():
        if path is not None and _REPLICAS in owned.set:
            found.fields[manager] = VersionedSet(FieldSet.of(path), api_version, owned.applied)
            found.times[manager] = managed.times.get(manager)
    return encode(found)
