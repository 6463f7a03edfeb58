"""The ``repr`` of models, and their documentation for ``help()``. This module is loaded on demand."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from kubeloop.meta.model import Model
    from kubeloop.meta.resource import Resource

#: Fields with credentials, in any kind.
_SECRET_FIELDS = frozenset({"token"})
#: Annotations with a copy of the whole object, including its secrets.
_SECRET_ANNOTATIONS = frozenset({"kubectl.kubernetes.io/last-applied-configuration"})
#: Maximum number of characters of a text, and maximum number of key names.
_TEXT, _KEYS = 200, 5
#: Conditions that sum up an object, the most informative first.
_CONDITIONS = ("Ready", "Available", "Established", "Complete", "Failed", "Approved", "Denied")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 object``, ``2 objects``. ``noun`` is singular and takes an s."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def line_of(obj: Resource) -> str:
    """Return one line such as ``Pod(shop/web-0, Running, node-7)``."""
    facts = [name_of(obj), *summary_of(obj)]
    return f"{type(obj).__name__}({', '.join(facts)})"


def name_of(obj: Resource) -> str:
    metadata = obj.metadata
    generated = _at(metadata, "generateName")
    name = _at(metadata, "name") or (f"{generated}*" if generated else "unnamed")
    namespace = _at(metadata, "namespace")
    return f"{namespace}/{name}" if namespace else str(name)


def summary_of(obj: Resource) -> Iterator[str]:
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
    result: set[str] = set()
    for name in ("data", "stringData", "binaryData"):
        held = _at(tree, name)
        if isinstance(held, dict):
            result |= {str(key) for key in held}
    return sorted(result)


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
    """Format the value of a field or of an item: long texts are cut, bytes are only counted, times are in Kubernetes' format."""
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
    """Print a model in IPython, one line per field if one line is too short for all. ``printer`` is IPython's pretty printer."""
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


# The documentation of models: built when ``help()`` or an editor requests it, so that it costs nothing before.
#
# Generated models have a stub beside their module, with the schema's facts about each field. Hand-written models have a string below each
# field in their module. A model with neither has only the text of its class.


_FACTS = "Wire name "


def doc_of(cls: type[msgspec.Struct], docstring: str | None = None) -> str:
    """Return the text of the class, and name, type and documentation of each field.

    Args:
        cls: A model.
        docstring: The docstring of the class. It stands alone if there is no text below any field.
    """
    stub, *_ = nodes = [_node_of(base) for base in cls.__mro__ if issubclass(base, msgspec.Struct)]
    texts = {name: text for node in reversed(nodes) if node is not None for name, text in _field_texts(node)}
    head = docstring or (ast.get_docstring(stub) if stub is not None else None) or f"{cls.__name__}."
    fields = [info for info in msgspec.structs.fields(cls) if not info.name.startswith("_")]
    if not fields or (docstring is not None and not (stub is not None and any(_field_texts(stub)))):
        return head
    return "\n".join([inspect.cleandoc(head), "", "Fields:", *(_entry(info, texts.get(info.name)) for info in fields)])


def _entry(info: msgspec.structs.FieldInfo, known: tuple[str, str] | None) -> str:
    facts = _of_field(info)
    if known is None:
        return facts
    annotation, text = known
    first, second = facts.splitlines()
    return f"    {info.name}: {annotation}\n        {text}" if text.startswith(_FACTS) else f"{first}\n{second} {text}"


def _node_of(cls: type[msgspec.Struct]) -> ast.ClassDef | None:
    """Return the syntax tree of a class, from the stub beside its module or else from the module; None if there is no source."""
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    return _classes_of(file).get(cls.__name__) if file and file.endswith(".py") else None


@lru_cache(4)
def _classes_of(file: str) -> dict[str, ast.ClassDef]:
    stub = Path(file).with_suffix(".pyi")
    try:
        text = (stub if stub.exists() else Path(file)).read_text("utf-8")
    except OSError:  # the module is in an archive
        return {}
    return {node.name: node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)}


def _field_texts(node: ast.ClassDef) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield name, type and docstring of each field."""
    for field, below in zip(node.body, node.body[1:], strict=False):
        if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
            continue
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
            yield field.target.id, (ast.unparse(field.annotation), " ".join(below.value.value.split()))


def _of_field(info: msgspec.structs.FieldInfo) -> str:
    need = "required" if info.required else "optional"
    default: Any = info.default
    if default is not msgspec.NODEFAULT and default is not msgspec.UNSET and default not in ("", None):
        need += f"; {default!r} if absent"
    return f"    {info.name}: {_type_text(info.type)}\n        Wire name ``{info.encode_name}``, {need}."


def _type_text(hint: Any) -> str:
    text = hint.__name__ if isinstance(hint, type) and not hasattr(hint, "__args__") else str(hint)
    return inspect.cleandoc(text).replace("typing.", "")


#: Number of objects shown as text and as table rows; the others are counted.
_LIST_ITEMS, _LIST_ROWS = 10, 100


def list_text(objects: Sequence[Resource]) -> str:
    """Return the ``repr`` of a list: its first objects, and the number of the others."""
    shown = [repr(one) for one in objects[:_LIST_ITEMS]]
    if len(objects) > _LIST_ITEMS:
        shown.append(f"and {len(objects) - _LIST_ITEMS} more")
    return f"[{', '.join(shown)}]"


def list_html(objects: Sequence[Resource]) -> str:
    """Return an HTML table for notebooks: namespace, name, facts and age of each object."""
    now = datetime.now(UTC)
    rows = "".join(_row(one, now) for one in objects[:_LIST_ROWS])
    more = f"<p>and {len(objects) - _LIST_ROWS} more</p>" if len(objects) > _LIST_ROWS else ""
    kind = escape(objects[0].kind or type(objects[0]).__name__) if objects else "no objects"
    head = "".join(f"<th>{title}</th>" for title in ("Namespace", "Name", "", "Age"))
    return f"<table><caption>{kind}: {len(objects)}</caption><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{more}"


def _row(obj: Resource, now: datetime) -> str:
    metadata = obj.metadata
    made = metadata.creation_timestamp
    cells = metadata.namespace, metadata.name, ", ".join(summary_of(obj)), _age((now - made).total_seconds()) if made else ""
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"


def _age(seconds: float) -> str:
    """Format an age with its largest unit, like kubectl: 5d, 3h, 7m, 9s."""
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{int(seconds // length)}{unit}"
    return f"{max(0, int(seconds))}s"
