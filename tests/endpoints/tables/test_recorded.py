"""Tables as a Kubernetes 1.36 API server printed them: objects of every kind, with the cells that it showed for them.

``recorded_tables.json`` holds, for each resource, the time of the answer, the columns, and rows of objects and cells.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kubeloop.endpoints.tables import table
from kubeloop.meta.kinds import GroupResource

RECORDED = json.loads((Path(__file__).parent / "recorded_tables.json").read_text())


def _name(recorded: dict[str, Any]) -> str:
    return f"{recorded['resource']}.{recorded['group'] or 'core'}/{recorded['version']}"


@pytest.mark.parametrize("recorded", [pytest.param(one, id=f"{_name(one)} has Kubernetes' columns") for one in RECORDED])
def test_columns(recorded: dict[str, Any]) -> None:
    made = table(GroupResource(recorded["group"], recorded["resource"]), [], {}, now=0)
    shown = [[one["name"], one["type"], one["format"], one["priority"]] for one in made["columnDefinitions"]]
    assert shown == recorded["columns"]


@pytest.mark.parametrize(
    ("recorded", "row"),
    [
        pytest.param(one, row, id=f"{_name(one)} shows {row['object']['metadata']['name']} as Kubernetes does")
        for one in RECORDED
        for row in one["rows"]
    ],
)
def test_cells(recorded: dict[str, Any], row: dict[str, Any]) -> None:
    resource = GroupResource(recorded["group"], recorded["resource"])
    made = table(resource, [row["object"]], {}, now=recorded["now"])["rows"][0]
    assert made["cells"] == row["cells"]
    assert [one["reason"] for one in made.get("conditions", [])] == row["conditions"]
