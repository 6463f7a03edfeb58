"""Views of objects during mutating admission, and checks of the metadata that plug-ins set.

Upstream sets uid, creation time and generated names after admission. Here they are set before, and hidden from plug-ins.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kubeloop.apiserver.admission import Attributes
from kubeloop.endpoints import api_errors
from kubeloop.types import JSONObject

_NOT_YET_GIVEN = ("uid", "creationTimestamp")


@contextmanager
def hide_generated_metadata(attributes: Attributes) -> Iterator[None]:
    """Hide uid, creation time and generated name of a new object inside the context. A name that a plug-in sets there stays."""
    hidden = _hide(attributes)
    try:
        yield
    finally:
        _show(attributes, hidden)


def _hide(attributes: Attributes) -> JSONObject:
    metadata = (attributes.obj or {}).get("metadata")
    if attributes.operation != "CREATE" or metadata is None or attributes.kind is not None:
        return {}
    generated = not attributes.name and metadata.get("generateName")
    names = (*_NOT_YET_GIVEN, "name") if generated else _NOT_YET_GIVEN
    return {name: metadata.pop(name) for name in names if name in metadata}


def _show(attributes: Attributes, hidden: JSONObject) -> None:
    if attributes.obj is None or not hidden:
        return
    metadata = attributes.obj.setdefault("metadata", {})
    for name, value in hidden.items():
        if name != "name" or not metadata.get("name"):
            metadata[name] = value


def check_patched_metadata(attributes: Attributes, patched: JSONObject) -> None:
    """Check that a plug-in left the namespace and resource version of an object unchanged. Validation checks the other metadata later.

    Raises:
        BadRequest: The namespace differs.
        Conflict: The resourceVersion differs.
    """
    assert attributes.obj is not None
    before, after = attributes.obj.get("metadata") or {}, patched.setdefault("metadata", {})
    if attributes.kind is None and (after.get("namespace") or "") not in ("", attributes.namespace):
        raise api_errors.bad_request("the namespace of the provided object does not match the namespace sent on the request")
    if attributes.operation == "UPDATE" and (before.get("resourceVersion") or "") != (after.get("resourceVersion") or ""):
        if after.get("resourceVersion"):
            raise api_errors.conflict(attributes.resource.gvr.group_resource, attributes.name, api_errors.STALE)
        after["resourceVersion"] = before["resourceVersion"]
    if attributes.namespace:
        after["namespace"] = attributes.namespace


def replace_object(obj: JSONObject, patched: JSONObject) -> None:
    """Replace the content of ``obj`` and of its metadata with that of ``patched``, in place, because other code refers to both."""
    metadata: JSONObject = obj.setdefault("metadata", {})
    new_metadata = dict(patched.get("metadata") or {})
    rest = dict(patched)
    metadata.clear()
    metadata.update(new_metadata)
    obj.clear()
    obj.update(rest)
    obj["metadata"] = metadata
