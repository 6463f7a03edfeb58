"""Printer columns of custom resources: ``additionalPrinterColumns``, by default the age.

Source: apiextensions-apiserver registry/customresource/tableconvertor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kubeloop.endpoints.tables.layout import TableColumn, age
from kubeloop.merge import JSONPath, JSONPathError
from kubeloop.meta.field_error import go_whole
from kubeloop.types import JSONObject

#: Null in a cell, as Go prints it.
_NOTHING = "<no value>"


def columns_of(version: JSONObject) -> tuple[TableColumn, ...]:
    """Return the columns of a version: the name, then the ``additionalPrinterColumns`` or else the age."""
    name = TableColumn(
        "Name", "string", "name", "Name of the object, unique in its namespace.", 0, lambda obj, _: obj["metadata"].get("name", "")
    )
    requested = version.get("additionalPrinterColumns") or [
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp", "description": "When the object was created."}
    ]
    columns = [name]
    for column in requested:
        try:
            columns.append(_column(column))
        except JSONPathError:
            # As upstream: columns after the first invalid path are left out.
            break
    return tuple(columns)


def _column(column: JSONObject) -> TableColumn:
    path = column["jsonPath"]
    described = column.get("description") or f"Custom resource definition column (in JSONPath format): {path}"
    format_, priority = column.get("format") or "", column.get("priority") or 0
    return TableColumn(column["name"], column["type"], format_, described, priority, _reader(path, column["type"]))


def _reader(path: str, type_: str) -> Callable[[JSONObject, float], Any]:
    compiled = JSONPath(f"{{{path}}}", allow_missing=True)

    def read(obj: JSONObject, now: float) -> Any:
        try:
            current = compiled.values(obj)
        except JSONPathError:
            return None
        if not current:
            return None
        value = current[0]
        if type_ != "string":
            return _cell(type_, value, now)
        return _NOTHING if value is None else compiled.text(value)

    return read


def _cell(type_: str, value: Any, now: float) -> Any:
    """Return a value in the type of its column, or None if the value has another type."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    match type_:
        case "integer" if number:
            return int(value)
        case "number" if number:
            return go_whole(float(value))
        case "boolean" if isinstance(value, bool):
            return value
        case "date" if isinstance(value, str):
            return age(value, now, invalid="<invalid>")
        case _:
            return None
