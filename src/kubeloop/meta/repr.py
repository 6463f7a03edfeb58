"""``repr`` of objects for interactive use: one line for an object, its parts in full, and never a secret.

Loaded at the first ``repr``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from kubeloop.meta.model import Model
    from kubeloop.meta.resource import Resource

#: Fields with credentials, in any kind.
_SECRET_FIELDS = frozenset({"token"})
#: Annotations with a copy of the whole object, including its secrets.
_SECRET_ANNOTATIONS = frozenset({"kubectl.kubernetes.io/last-applied-configuration"})
#: Maximum number of characters of a text, and of key names.
_TEXT, _KEYS = 200, 5
#: Conditions that sum up an object, the most informative first.
_CONDITIONS = ("Ready", "Available", "Established", "Complete", "Failed", "Approved", "Denied")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 object``, ``2 objects``. ``noun`` is singular and takes an s."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def line_of(obj: Resource) -> str:
    """Return one line such as ``Pod(shop/web-0, Running, node-7)``."""
    facts = [name_of(obj), *facts_of(obj)]
    return f"{type(obj).__name__}({', '.join(facts)})"


def name_of(obj: Resource) -> str:
    metadata = obj.metadata
    generated = _at(metadata, "generateName")
    name = _at(metadata, "name") or (f"{generated}*" if generated else "unnamed")
    namespace = _at(metadata, "namespace")
    return f"{namespace}/{name}" if namespace else str(name)


def facts_of(obj: Resource) -> Iterator[str]:
    """Yield the most useful facts about an object, in a few words; none of them is secret."""
    tree: Any = getattr(obj, "content", obj)
    if _at(obj.metadata, "deletionTimestamp") is not None:
        yield "Terminating"
    yield from _state(tree)
    spec = _at(tree, "spec")
    for place in ("nodeName", "clusterIP"):
        value = _at(spec, place)
        if isinstance(value, str) and value:
            yield value
    if obj.kind in ("Secret", "Service") and isinstance(kind := _at(tree, "type") or _at(spec, "type"), str):
        yield kind
    reason, message = _at(tree, "reason"), _at(tree, "message")
    if isinstance(reason, str) and isinstance(message, str) and reason:
        yield f"{reason}: {_cut(message, 60)}"
    keys = _keys(tree)
    if keys:
        yield f"keys: {', '.join(keys[:_KEYS])}" + (f" and {len(keys) - _KEYS} more" if len(keys) > _KEYS else "")


def _state(tree: Any) -> Iterator[str]:
    status = _at(tree, "status")
    phase, wanted = _at(status, "phase"), _at(tree, "spec", "replicas")
    if isinstance(phase, str) and phase:
        yield phase
        return
    if isinstance(wanted, int) and status is not None:
        ready = _at(status, "readyReplicas")
        yield f"{ready if isinstance(ready, int) else 0}/{wanted} ready"
        return
    conditions = _at(status, "conditions")
    if isinstance(conditions, list):
        said = {_at(one, "type"): _at(one, "status") for one in conditions}
        for name in _CONDITIONS:
            if name in said:
                yield name if said[name] == "True" else f"not {name}"
                return


def _keys(tree: Any) -> list[str]:
    """Return the key names of a ConfigMap or Secret."""
    found: set[str] = set()
    for name in ("data", "stringData", "binaryData"):
        held = _at(tree, name)
        if isinstance(held, dict):
            found |= {str(key) for key in held}
    return sorted(found)


def _at(value: Any, *path: str) -> Any:
    """Return the value at a path of wire names, in a typed object or a tree; None where anything is missing."""
    for name in path:
        if isinstance(value, msgspec.Struct):
            wires = value.__struct_encode_fields__
            value = getattr(value, value.__struct_fields__[wires.index(name)], None) if name in wires else None
        else:
            value = value.get(name) if isinstance(value, dict) else None
    return value


def shown_fields(obj: Model) -> Iterator[tuple[str, str]]:
    """Yield the non-empty fields of a part, each as text."""
    for name, default in zip(obj.__struct_fields__, _defaults(type(obj)), strict=True):
        value = getattr(obj, name)
        if name.startswith("_") or value is default or value == default or _is_empty(value):
            continue
        yield name, _shown_field(name, value)


def part_of(obj: Model) -> str:
    """Return a text such as ``Container(name='web', image='nginx')``, without empty fields."""
    return f"{type(obj).__name__}({', '.join(f'{name}={text}' for name, text in shown_fields(obj))})"


def _defaults(cls: type[Model]) -> tuple[Any, ...]:
    required = len(cls.__struct_fields__) - len(cls.__struct_defaults__)
    return (msgspec.UNSET,) * required + tuple(cls.__struct_defaults__)


def _is_empty(value: Any) -> bool:
    if isinstance(value, msgspec.Struct):
        return all(_is_empty(getattr(value, name)) for name in value.__struct_fields__)
    return value is None or value == "" or (isinstance(value, list | dict) and not value)


def _shown_field(name: str, value: Any) -> str:
    if name in _SECRET_FIELDS and value:
        return "<secret>"
    if name == "managed_fields" and isinstance(value, list):
        return f"<{len(value)} entries>"
    if name == "annotations" and isinstance(value, dict):
        value = {key: _Hidden(text) if key in _SECRET_ANNOTATIONS else text for key, text in value.items()}
    return shown(value)


class _Hidden:
    def __init__(self, value: object) -> None:
        self.size = len(value) if isinstance(value, str) else 0


def shown(value: Any) -> str:
    """Format a value within another: long texts cut, bytes only counted, times as in Kubernetes."""
    if isinstance(value, _Hidden):
        return f"<{value.size} characters>"
    if isinstance(value, str):
        return repr(_cut(value, _TEXT))
    if isinstance(value, bytes | bytearray | msgspec.Raw):
        return f"<{len(bytes(value))} bytes>"
    if isinstance(value, datetime):
        return _time(value)
    if type(value) is list:
        return f"[{', '.join(map(shown, value))}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{shown(key)}: {shown(one)}" for key, one in value.items()) + "}"
    return repr(value)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}\N{HORIZONTAL ELLIPSIS}"


def _time(moment: datetime) -> str:
    return moment.isoformat() if moment.tzinfo is None else moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def pretty(obj: Model, printer: Any, cycle: bool) -> None:
    """Print in IPython: one line per field if one line is too short for all. ``printer`` is IPython's."""
    if cycle:
        printer.text(f"{type(obj).__name__}(...)")
        return
    with printer.group(len(type(obj).__name__) + 1, f"{type(obj).__name__}(", ")"):
        for index, (name, text) in enumerate(shown_fields(obj)):
            if index:
                printer.text(",")
                printer.breakable()
            printer.text(f"{name}=")
            value = getattr(obj, name)
            inner = [value] if isinstance(value, msgspec.Struct) else value if type(value) is list else []
            if inner and all(isinstance(one, msgspec.Struct) for one in inner) and name != "managed_fields":
                printer.pretty(value)
            else:
                printer.text(text)
