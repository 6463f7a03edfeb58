"""Keys of objects as client-go spells them, ``namespace/name`` or ``name``, of whatever has a namespace and a name."""

from __future__ import annotations

from collections.abc import Mapping

from kubeloop.meta.key import ObjectKey


def meta_namespace_key(obj: object) -> str:
    """``namespace/name``, or ``name`` of a cluster-scoped object.

    Takes typed objects, objects as JSON, events, heads, ``ObjectKey``, and a key itself. (client-go's key functions must
    unwrap tombstones; here an event carries the object and says of itself that it is a tombstone.)

    Raises:
        ValueError: it has no name, or the name holds a slash.
    """
    if isinstance(obj, str):
        namespace, name = split_meta_namespace_key(obj)
    else:
        namespace, name = _names(obj)
    if not name or "/" in namespace or "/" in name:
        raise ValueError(f"a key needs a name without slashes, this has namespace {namespace!r} and name {name!r}")
    return f"{namespace}/{name}" if namespace else name


def split_meta_namespace_key(key: str) -> tuple[str, str]:
    """Namespace ("" if there is none) and name.

    Raises:
        ValueError: more than one slash.
    """
    parsed = ObjectKey.parse(key)
    return parsed.namespace, parsed.name


def meta_namespace(obj: object) -> str:
    """The namespace, "" of a cluster-scoped object: for an index by namespace. Takes and raises what ``meta_namespace_key`` does."""
    return split_meta_namespace_key(meta_namespace_key(obj))[0]


def _names(obj: object) -> tuple[str, str]:
    if isinstance(obj, Mapping):
        holder = obj.get("metadata")
        if isinstance(holder, Mapping):
            return str(holder.get("namespace") or ""), str(holder.get("name") or "")
    else:
        for holder in (getattr(obj, "metadata", None), obj, getattr(obj, "key", None)):
            if isinstance(getattr(holder, "name", None), str):
                return str(getattr(holder, "namespace", "") or ""), str(getattr(holder, "name", ""))
    raise ValueError(f"{type(obj).__name__} is no object: it has neither metadata nor a name")
