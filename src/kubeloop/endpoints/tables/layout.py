"""The columns of a Table for one kind, and functions that compute cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kubeloop.meta.selectors import selector_from
from kubeloop.meta.time import parse_time
from kubeloop.types import JSONObject

# Durations for people, with two or three significant figures, as kubectl shows ages. Source: apimachinery util/duration HumanDuration.


def human_duration(seconds: float) -> str:
    """Return a duration for people: ``85s``, ``3m10s``, ``5h2m``, ``4d3h``, ``2y100d``.

    A duration between -2 and 0 seconds, which clock skew may cause, is shown as ``0s``; a smaller one as ``<invalid>``.
    """
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 120:
        return f"{max(whole, 0)}s"
    minutes, hours = whole // 60, whole // 3600
    days = hours // 24
    if minutes < 10:
        return _two(minutes, "m", whole % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 365 * 2:
        return f"{days}d"
    if days < 365 * 8:
        return _two(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}" + (f"{small}{small_unit}" if small else "")


def age(timestamp: str | None, now: float, *, invalid: str = "<unknown>") -> str:
    """Return the time between ``timestamp`` (RFC 3339) and ``now`` (seconds since the epoch), for people.

    Without a timestamp the result is ``<unknown>``; for a malformed one it is ``invalid``.
    """
    if not timestamp:
        return "<unknown>"
    try:
        return human_duration(now - parse_time(timestamp).timestamp())
    except ValueError:
        return invalid


def between(start: str, end: str) -> str:
    """Return the time between two timestamps, for people."""
    return human_duration(parse_time(end).timestamp() - parse_time(start).timestamp())


#: Returns the cells of an object at a time (seconds since the epoch), one for each column.
Cells = Callable[[JSONObject, float], list[Any]]

_DESCRIPTIONS: Final = {
    "Name": "Name of the object, unique in its namespace.",
    "Age": "Time since the object was created.",
    "Created At": "When the object was created.",
}


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a column. A column of ``priority`` 0 is always shown, one of priority 1 only in the wide form."""

    name: str
    type: str = "string"
    format: str = ""
    priority: int = 0

    def definition(self) -> JSONObject:
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": _DESCRIPTIONS.get(self.name, f"{self.name} of the object."),
            "priority": self.priority,
        }


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a custom resource's Table.

    ``value`` returns the cell of an object; its second argument is the time in seconds since the epoch, for ages.

    Example:
        >>> column = TableColumn("Size", "integer", "", "Number of parts.", 0, lambda obj, now: obj["spec"]["size"])
        >>> column.value({"spec": {"size": 3}}, 0.0)
        3
    """

    name: str
    type: str
    format: str
    description: str
    priority: int
    value: Callable[[JSONObject, float], Any]

    def definition(self) -> JSONObject:
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns and cells of a built-in kind's Table."""

    headers: tuple[Header, ...]
    cells: Cells
    #: Conditions of a row, such as a pod that has completed.
    conditions: Callable[[JSONObject], list[JSONObject] | None] = lambda _: None
    #: The sort key of rows, for kinds whose Table has another order than the list.
    order: Callable[[JSONObject], Any] | None = None


def layout(columns: str, cells: Cells) -> Layout:
    """Return the layout for a description of columns, separated by ``|``, and a function that computes the cells.

    ``Count:integer`` names a column and its type (default string); ``IP!`` is shown only in the wide form. The column ``Name`` has the
    format ``name``.
    """
    return Layout(tuple(_header(text.strip()) for text in columns.split("|")), cells)


def _header(text: str) -> Header:
    wide = text.endswith("!")
    name, _, type_ = text.removesuffix("!").partition(":")
    type_, _, format_ = type_.partition("/")
    return Header(name, type_ or "string", format_ or ("name" if name == "Name" else ""), 1 if wide else 0)


def name_of(obj: JSONObject) -> str:
    return str(obj["metadata"].get("name") or "")


def age_of(obj: JSONObject, now: float) -> str:
    return age(obj["metadata"].get("creationTimestamp"), now)


def part(obj: Mapping[str, Any], *path: str) -> JSONObject:
    """Return the object at a path of field names, or an empty object if there is none."""
    value: Any = obj
    for name in path:
        value = value.get(name) or {}
    found: JSONObject = value
    return found


def labels_text(labels: Mapping[str, str] | None) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or "<none>"


def selector_text(selector: Mapping[str, Any] | None) -> str:
    """Return a LabelSelector as text, in the syntax of kubectl's ``-l``."""
    try:
        return str(selector_from(selector)) or "<none>"
    except ValueError:
        return "<error>"


def containers_text(pod_spec: Mapping[str, Any]) -> tuple[str, str]:
    """Return the names and the images of the containers, each separated by commas."""
    containers = pod_spec.get("containers") or []
    return ",".join(one.get("name", "") for one in containers), ",".join(one.get("image", "") for one in containers)


def shortened(texts: list[str], maximum: int, count: int) -> str:
    """Return the first ``maximum`` texts, and the number of the remaining ones of ``count`` (``a,b + 3 more...``)."""
    shown = ",".join(texts[:maximum])
    return f"{shown} + {count - maximum} more..." if len(texts) > maximum else shown


def _created_at(obj: JSONObject, _: float) -> list[Any]:
    return [name_of(obj), obj["metadata"].get("creationTimestamp")]


#: The columns of kinds for which upstream defines none.
PLAIN: Final = layout("Name | Created At:date", _created_at)
#: Kinds that show name and age only.
NAME_AND_AGE: Final = layout("Name | Age", lambda obj, now: [name_of(obj), age_of(obj, now)])
