"""Tables as a client sees them: rows of hidden objects are dropped, cells of changed objects computed again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from kubeloop.endpoints.tables import table
from kubeloop.endpoints.tables.layout import TableColumn
from kubeloop.endpoints.tables.printer_columns import columns_of
from kubeloop.meta.errors import ApiError
from kubeloop.meta.kinds import GroupResource
from kubeloop.proxy.tables import PrinterColumns, TablePages, TableRewriter
from kubeloop.timing import FakeClock
from kubeloop.types import JSONObject
from tests.proxy.rules.rule_texts import rule
from tests.proxy.samples import ScriptedAnswer, ScriptedUpstream, pod, view_of

PODS, WIDGETS = GroupResource("", "pods"), GroupResource("example.com", "widgets")
NOW = datetime(2026, 1, 1, 1, tzinfo=UTC)
HIDE_BACK = rule(match=[{"labelSelector": "tier=back"}])
MOVE = rule({"set": {"spec.nodeName": "hidden"}}, name="move", match=[{"labelSelector": "tier=moved"}])
WIDGET_VERSION: JSONObject = {
    "name": "v1",
    "additionalPrinterColumns": [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ],
}


def server_table(resource: GroupResource, trees: Sequence[JSONObject], columns: Sequence[TableColumn] | None = None) -> JSONObject:
    """Return a Table with whole objects, as the API server sends it to the proxy."""
    listed = {"resourceVersion": "9", "continue": "token", "remainingItemCount": 4}
    return table(resource, list(trees), listed, now=NOW.timestamp(), columns=columns, include="Object")


async def rewritten(
    document: JSONObject, *rules: JSONObject, include: str = "", resource: GroupResource = PODS, columns: Any = None
) -> JSONObject:
    async def get_columns() -> Any:
        return columns

    return await TableRewriter(view_of(*rules), resource, include, get_columns, FakeClock(NOW)).rewrite(document)


def cells(document: JSONObject) -> list[dict[str, Any]]:
    names = [column["name"] for column in document["columnDefinitions"]]
    return [dict(zip(names, row["cells"], strict=True)) for row in document["rows"]]


async def test_rows_of_hidden_objects_are_dropped_and_the_other_cells_stay() -> None:
    before = server_table(PODS, [pod("a"), pod("b", "back"), pod("c")])
    after = await rewritten(before, HIDE_BACK)
    assert cells(after) == [cells(before)[0], cells(before)[2]]
    assert after["metadata"] == {"resourceVersion": "9", "continue": "token"}
    assert len(before["rows"]) == 3


async def test_cells_of_a_changed_object_show_the_change() -> None:
    before = server_table(PODS, [pod("a"), pod("b", "moved")])
    after = await rewritten(before, MOVE)
    assert [row["Node"] for row in cells(after)] == ["node-7", "hidden"]
    assert cells(after)[1] == cells(before)[1] | {"Node": "hidden"}


async def test_conditions_of_a_changed_row_are_computed_again() -> None:
    done = pod("a", "moved") | {"status": {"phase": "Succeeded"}}
    before = server_table(PODS, [done])
    assert before["rows"][0]["conditions"][0]["reason"] == "Succeeded"
    after = await rewritten(before, rule({"set": {"status.phase": "Running"}}))
    assert "conditions" not in after["rows"][0]
    assert cells(after)[0]["Status"] == "Running"


async def test_cells_of_a_custom_kind_are_computed_by_its_printer_columns() -> None:
    widget = {"kind": "Widget", "apiVersion": "example.com/v1", "metadata": pod("a")["metadata"], "spec": {"size": 3}}
    columns = columns_of(WIDGET_VERSION)
    before = server_table(WIDGETS, [widget], columns)
    after = await rewritten(before, rule({"set": {"spec.size": 0}}), resource=WIDGETS, columns=columns)
    assert cells(before) == [{"Name": "a", "Size": 3, "Age": "60m"}]
    assert cells(after) == [{"Name": "a", "Size": 0, "Age": "60m"}]


async def test_cells_that_the_proxy_cannot_compute_are_unknown() -> None:
    before = server_table(PODS, [pod("a", "moved")])
    before["columnDefinitions"].append({"name": "Flavour", "type": "string"})
    before["rows"][0]["cells"].append("original")
    (row,) = cells(await rewritten(before, MOVE))
    assert (row["Name"], row["Flavour"]) == ("a", "<unknown>")
    widget = {"kind": "Widget", "apiVersion": "example.com/v1", "metadata": pod("a")["metadata"], "spec": {"size": 3}}
    before = server_table(WIDGETS, [widget], columns_of(WIDGET_VERSION))
    (row,) = cells(await rewritten(before, rule({"set": {"spec.size": 0}}), resource=WIDGETS))
    assert row["Size"] == "<unknown>"


@pytest.mark.parametrize(
    ("include", "kind"),
    [
        pytest.param("None", None, id="no object"),
        pytest.param("Metadata", "PartialObjectMetadata", id="its metadata"),
        pytest.param("", "PartialObjectMetadata", id="its metadata by default"),
        pytest.param("Object", "Pod", id="the whole object"),
    ],
)
@pytest.mark.parametrize("tier", ["front", "moved"])
async def test_a_row_has_the_part_of_the_object_that_the_client_asked_for(include: str, kind: str | None, tier: str) -> None:
    document = await rewritten(server_table(PODS, [pod("a", tier)]), MOVE, include=include)
    found = document["rows"][0]["object"]
    assert (found and found["kind"]) == kind
    if kind == "Pod":
        assert found["spec"]["nodeName"] == ("hidden" if tier == "moved" else "node-7")


@pytest.mark.parametrize(
    "row",
    [
        pytest.param({"cells": ["a"]}, id="none"),
        pytest.param({"cells": ["a"], "object": None}, id="null"),
        pytest.param({"cells": ["a"], "object": {"kind": "Pod"}}, id="one without metadata"),
        pytest.param({"cells": ["a"], "object": []}, id="a list"),
    ],
)
async def test_a_row_without_its_object_is_an_error_because_no_rule_can_decide(row: JSONObject) -> None:
    document = server_table(PODS, []) | {"rows": [row]}
    with pytest.raises(ApiError) as raised:
        await rewritten(document, HIDE_BACK)
    assert raised.value.status.code == 502


@pytest.mark.parametrize(
    ("resource", "columns"),
    [
        pytest.param(PODS, None, id="of a resource with a printer"),
        pytest.param(GroupResource("", "limitranges"), None, id="of a resource with the default columns"),
        pytest.param(WIDGETS, columns_of(WIDGET_VERSION), id="of a custom resource"),
    ],
)
async def test_a_table_without_visible_objects_is_as_one_without_objects(
    resource: GroupResource, columns: Sequence[TableColumn] | None
) -> None:
    empty = server_table(resource, [], columns)
    expected = empty | {"metadata": {"resourceVersion": "9", "continue": "token"}}
    assert await rewritten(empty, HIDE_BACK, resource=resource) == expected
    assert await rewritten(server_table(resource, [pod("b", "back")], columns), HIDE_BACK, resource=resource) == expected


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_the_metadata_in_a_row_has_the_version_of_the_table(version: str) -> None:
    before = server_table(PODS, [pod("a"), pod("b", "moved")]) | {"apiVersion": f"meta.k8s.io/{version}"}
    after = await rewritten(before, MOVE)
    assert [after["apiVersion"], *(row["object"]["apiVersion"] for row in after["rows"])] == [f"meta.k8s.io/{version}"] * 3


@pytest.mark.parametrize("include", ["", "Metadata", "Object", "None"])
@pytest.mark.parametrize(
    "annotations",
    [
        pytest.param({}, id="a bookmark"),
        pytest.param({"k8s.io/initial-events-end": "true"}, id="the end of the initial events"),
    ],
)
def test_a_bookmark_has_the_part_of_the_object_that_the_client_asked_for(include: str, annotations: dict[str, str]) -> None:
    sent = {"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": "9", "annotations": annotations}, "spec": {}}
    document, expected = (table(PODS, [sent], {}, now=0.0, include=part) for part in ("Object", include))

    async def get_columns() -> None:
        return None

    rewriter = TableRewriter(view_of(HIDE_BACK), PODS, include, get_columns, FakeClock(NOW))
    rewriter.learn(document)
    assert rewriter.of_bookmark(document) == expected


def test_pages_of_a_table_without_rows_are_joined_to_one() -> None:
    none, one = {"metadata": {"continue": "x"}, "rows": None}, {"metadata": {}, "rows": [{"cells": ["a"]}]}
    pages = TablePages({**none})
    pages.add({**none})
    assert (pages.shown, pages.continue_token) == (0, "x")
    pages.add(one)
    assert (pages.shown, pages.continue_token) == (1, "")


# Printer columns, which the proxy reads from definitions


def definition(request: Any) -> ScriptedAnswer:
    assert request.target == "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com"
    return ScriptedAnswer(
        chunks=[
            b'{"spec":{"versions":[{"name":"v1","additionalPrinterColumns":[{"name":"Size","type":"integer","jsonPath":".spec.size"}]}]}}'
        ]
    )


async def test_printer_columns_are_read_once_in_half_a_minute() -> None:
    clock, upstream = FakeClock(), ScriptedUpstream(definition)
    columns = PrinterColumns(upstream, clock)
    for _ in range(3):
        found = await columns.get(WIDGETS, "v1")
        assert found is not None
        assert [column.name for column in found][-1] == "Size"
    assert len(upstream.requests) == 1
    await clock.advance(31)
    await columns.get(WIDGETS, "v1")
    assert len(upstream.requests) == 2


@pytest.mark.parametrize(
    ("status", "expected"),
    [pytest.param(403, None, id="forbidden"), pytest.param(404, None, id="missing"), pytest.param(500, 500, id="broken")],
)
async def test_printer_columns_that_cannot_be_read(status: int, expected: int | None) -> None:
    columns = PrinterColumns(ScriptedUpstream(lambda _: ScriptedAnswer(status, [b'{"kind":"Status","code":%d}' % status])), FakeClock())
    if expected is None:
        assert await columns.get(WIDGETS, "v1") is None
        return
    with pytest.raises(ApiError):
        await columns.get(WIDGETS, "v1")


async def test_built_in_kinds_and_unknown_versions_have_no_printer_columns() -> None:
    upstream = ScriptedUpstream(definition)
    assert await PrinterColumns(upstream, FakeClock()).get(GroupResource("apps", "deployments"), "v1") is None
    assert upstream.requests == []
    assert await PrinterColumns(upstream, FakeClock()).get(WIDGETS, "v2") is None
