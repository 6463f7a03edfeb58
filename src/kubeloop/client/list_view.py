"""How a list looks at the prompt and in a notebook's cell. Loaded when one is shown."""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any

from kubeloop.meta.repr import facts_of

if TYPE_CHECKING:
    from kubeloop.client.lists import ObjectList
    from kubeloop.meta import Resource

#: Objects that are shown; the rest is counted.
_TEXT, _ROWS = 10, 100


def text_of(objects: ObjectList[Any]) -> str:
    shown = [repr(one) for one in objects[:_TEXT]]
    if len(objects) > _TEXT:
        shown.append(f"and {len(objects) - _TEXT} more")
    return f"[{', '.join(shown)}]"


def html_of(objects: ObjectList[Any]) -> str:
    """A table: namespace, name, what there is to say, age."""
    now = datetime.now(UTC)
    rows = "".join(_row(one, now) for one in objects[:_ROWS])
    more = f"<p>and {len(objects) - _ROWS} more</p>" if len(objects) > _ROWS else ""
    kind = escape(objects[0].kind or type(objects[0]).__name__) if objects else "no objects"
    head = "".join(f"<th>{title}</th>" for title in ("Namespace", "Name", "", "Age"))
    return f"<table><caption>{kind}: {len(objects)}</caption><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{more}"


def _row(obj: Resource, now: datetime) -> str:
    metadata = obj.metadata
    made = metadata.creation_timestamp
    cells = metadata.namespace, metadata.name, ", ".join(facts_of(obj)), _age((now - made).total_seconds()) if made else ""
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"


def _age(seconds: float) -> str:
    """As kubectl's first unit: 5d, 3h, 7m, 9s."""
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{int(seconds // length)}{unit}"
    return f"{max(0, int(seconds))}s"
