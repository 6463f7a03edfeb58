"""Objects as they are while admission mutates them, and after: what the server gives a new one is not there yet.

Upstream gives it afterwards; here it is given before, and hidden meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kubeloop.apiserver.admission import Attributes
from kubeloop.endpoints import api_errors
from kubeloop.types import JSONObject

_NOT_YET_GIVEN = ("uid", "creationTimestamp")


@contextmanager
def unfinished(attributes: Attributes) -> Iterator[None]:
    """Within, a new object has no uid, creation time or generated name; a name that somebody gives it within counts."""
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


def check_metadata(attributes: Attributes, patched: JSONObject) -> None:
    """See to what admission may not change in an object; other metadata is checked as a client's is.

    Raises:
        BadRequest: another namespace. Conflict: another resourceVersion.
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
    """Make ``obj`` what ``patched`` is, in place, metadata too: others hold on to both."""
    metadata: JSONObject = obj.setdefault("metadata", {})
    given = dict(patched.get("metadata") or {})
    rest = dict(patched)
    metadata.clear()
    metadata.update(given)
    obj.clear()
    obj.update(rest)
    obj["metadata"] = metadata
