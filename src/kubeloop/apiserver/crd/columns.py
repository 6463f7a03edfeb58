"""Printer columns of custom resources: ``additionalPrinterColumns``, or the age.

Source: apiextensions-apiserver registry/customresource/tableconvertor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kubeloop.apiserver.crd.definition import JSONObject
from kubeloop.apiserver.resource import Column
from kubeloop.apiserver.tables.duration import age
from kubeloop.merge import JSONPath, JSONPathError
from kubeloop.meta.field_error import go_whole

#: As Go prints null in a cell.
_NOTHING = "<no value>"


def columns_of(version: JSONObject) -> tuple[Column, ...]:
    """The name, then what the definition asks for; without anything, the age."""
    name = Column(
        "Name", "string", "name", "Name of the object, unique in its namespace.", 0, lambda obj, _: obj["metadata"].get("name", "")
    )
    wanted = version.get("additionalPrinterColumns") or [
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp", "description": "When the object was created."}
    ]
    columns = [name]
    for column in wanted:
        try:
            columns.append(_column(column))
        except JSONPathError:
            # As upstream: from the first path that cannot be read on, columns are left out.
            break
    return tuple(columns)


def _column(column: JSONObject) -> Column:
    path = column["jsonPath"]
    described = column.get("description") or f"Custom resource definition column (in JSONPath format): {path}"
    format_, priority = column.get("format") or "", column.get("priority") or 0
    return Column(column["name"], column["type"], format_, described, priority, _reader(path, column["type"]))


def _reader(path: str, type_: str) -> Callable[[JSONObject, float], Any]:
    compiled = JSONPath(f"{{{path}}}", allow_missing=True)

    def read(obj: JSONObject, now: float) -> Any:
        try:
            found = compiled.values(obj)
        except JSONPathError:
            return None
        if not found:
            return None
        value = found[0]
        if type_ != "string":
            return _cell(type_, value, now)
        return _NOTHING if value is None else compiled.text(value)

    return read


def _cell(type_: str, value: Any, now: float) -> Any:
    """A value in the type of its column; null when it is of another."""
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
