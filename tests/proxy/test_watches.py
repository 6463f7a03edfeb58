"""The events of a watch as a client sees them: transitions between hidden and visible, in every form of a watch."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubeloop.codec import protobuf
from kubeloop.meta.errors import ApiError
from kubeloop.meta.kinds import GroupResource
from kubeloop.proxy.encodings import Form
from kubeloop.proxy.tables import TableRewriter
from kubeloop.proxy.view import ClientView
from kubeloop.proxy.watches import Key, WatchRewriter
from kubeloop.timing import FakeClock
from kubeloop.types import JSONObject
from tests.proxy.rules.rule_texts import rule
from tests.proxy.samples import JSON_TYPE, PROTOBUF, frame, pod, view_of

WEB = ("shop", "web-0")
PLAIN, METADATA, BINARY, TABLE = Form(JSON_TYPE), Form(JSON_TYPE, "PartialObjectMetadata"), Form(PROTOBUF), Form(JSON_TYPE, "Table")
COLUMNS = [{"name": name, "type": "string"} for name in ("Name", "Ready", "Node")]
HIDE_BACK = rule(match=[{"labelSelector": "tier=back"}])
HIDE_BY_CONDITION = rule(when="object.metadata.labels.tier == 'back'")
HIDE_BY_PYTHON = rule({"python": {"callable": "tests.proxy.hiding:hide_back"}})
MOVE = rule({"set": {"spec.nodeName": "hidden"}}, name="move")


async def no_columns() -> None:
    return None


def rewriter_of(view: ClientView, form: Form = PLAIN, visible: set[Key] | None = None, include: str = "Object") -> WatchRewriter:
    table = TableRewriter(view, GroupResource("", "pods"), include, no_columns, FakeClock()) if form.is_table else None
    return WatchRewriter(view, form, set() if visible is None else visible, table)


def table_of(tree: JSONObject, columns: Any = None) -> JSONObject:
    metadata = {"resourceVersion": tree["metadata"]["resourceVersion"]}
    row = {"cells": [tree["metadata"]["name"], "1/1", "node-7"], "object": tree}
    return {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": columns, "rows": [row]}


async def waited(rewriter: WatchRewriter, data: bytes) -> bytes | None:
    result = rewriter.event(memoryview(data))
    return result if result is None or isinstance(result, bytes) else await result


async def sent(rewriter: WatchRewriter, type_: str, tree: JSONObject) -> bytes | None:
    return await waited(rewriter, frame(type_, tree).removesuffix(b"\n"))


def decoded(data: bytes, form: Form) -> JSONObject:
    if form == BINARY:
        (event,) = protobuf.split_frames(data)
        return protobuf.decode_event(event)
    assert data.endswith(b"\n")
    assert data.count(b"\n") == 1
    tree: JSONObject = json.loads(data)
    return tree


def object_in(event: JSONObject, form: Form) -> Any:
    return event["object"]["rows"][0]["object"] if form.is_table else event["object"]


TRANSITIONS = [
    pytest.param("ADDED", "back", False, None, False, id="a hidden object that is added is no event"),
    pytest.param("ADDED", "back", True, "DELETED", False, id="a hidden object that is added again is deleted for a client that has it"),
    pytest.param("MODIFIED", "back", False, None, False, id="a change of a hidden object is no event"),
    pytest.param("MODIFIED", "back", True, "DELETED", False, id="an object that becomes hidden is deleted"),
    pytest.param("DELETED", "back", False, None, False, id="the deletion of a hidden object is no event"),
    pytest.param("DELETED", "back", True, "DELETED", False, id="an object that is hidden and deleted at once is deleted"),
    pytest.param("ADDED", "front", False, "ADDED", True, id="a visible object that is added is added"),
    pytest.param("ADDED", "front", True, "ADDED", True, id="a visible object that is added again is added"),
    pytest.param("MODIFIED", "front", False, "ADDED", True, id="an object that becomes visible is added"),
    pytest.param("MODIFIED", "front", True, "MODIFIED", True, id="a change of a visible object is a change"),
    pytest.param("DELETED", "front", False, None, False, id="the deletion of an object that the client never saw is no event"),
    pytest.param("DELETED", "front", True, "DELETED", False, id="the deletion of a visible object is a deletion"),
]


@pytest.mark.parametrize("form", [pytest.param(form, id=form.form or form.media_type) for form in (PLAIN, METADATA, BINARY, TABLE)])
@pytest.mark.parametrize(
    "hiding",
    [
        pytest.param((HIDE_BACK,), id="by label"),
        pytest.param((HIDE_BY_CONDITION,), id="by condition"),
        pytest.param((HIDE_BY_PYTHON,), id="by Python"),
        pytest.param((HIDE_BACK, MOVE), id="by label, others changed"),
    ],
)
@pytest.mark.parametrize(("type_", "tier", "seen", "expected", "sees"), TRANSITIONS)
async def test_transitions(
    type_: str, tier: str, seen: bool, expected: str | None, sees: bool, hiding: tuple[JSONObject, ...], form: Form
) -> None:
    visible: set[Key] = {WEB} if seen else set()
    rewriter = rewriter_of(view_of(*hiding), form, visible)
    tree = pod(tier=tier)
    data = await sent(rewriter, type_, table_of(tree, COLUMNS) if form.is_table else tree)
    assert visible == ({WEB} if sees else set())
    if expected is None:
        assert data is None
        return
    assert data is not None
    event = decoded(data, form)
    assert event["type"] == expected
    shown = object_in(event, form)
    assert shown["metadata"]["resourceVersion"] == "7"
    if tier == "back":
        assert set(shown["metadata"]) == {"name", "namespace", "uid", "resourceVersion", "creationTimestamp"}
        assert shown.get("spec") in (None, {"containers": None})  # protobuf has it always
        assert b"back" not in data
    elif form == METADATA:
        assert (shown["kind"], "spec" in shown) == ("PartialObjectMetadata", False)
    else:
        assert shown["spec"]["nodeName"] == ("hidden" if MOVE in hiding else "node-7")
        if form.is_table:
            assert event["object"]["rows"][0]["cells"][0] == "web-0"


def test_an_event_without_a_change_has_the_bytes_of_the_server() -> None:
    data = b'{"type":"ADDED","object":{"metadata": {"name":"a", "labels":{"tier":"\\u0066ront"}} , "x":1.50}}'
    assert rewriter_of(view_of(HIDE_BACK)).event(memoryview(data)) == data + b"\n"


def test_a_changed_type_leaves_the_bytes_of_the_object() -> None:
    data = b'{"type":"MODIFIED","object":{"metadata": {"name":"a"} , "x":1.50}}'
    result = rewriter_of(view_of(HIDE_BACK)).event(memoryview(data))
    assert result == b'{"type":"ADDED","object":{"metadata": {"name":"a"} , "x":1.50}}\n'


BOOKMARK = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": {"resourceVersion": "12", "creationTimestamp": None, "annotations": {"k8s.io/initial-events-end": "true"}},
    "spec": {"containers": None},
    "status": {},
}
GONE = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Expired", "code": 410, "message": "too old"}
HIDE_ALL = rule()


@pytest.mark.parametrize("rules", [pytest.param((HIDE_ALL,), id="all hidden"), pytest.param((MOVE,), id="all changed")])
@pytest.mark.parametrize(
    ("type_", "tree"),
    [
        pytest.param("BOOKMARK", BOOKMARK, id="a bookmark that ends the initial events"),
        pytest.param("ERROR", GONE, id="an error 410"),
    ],
)
async def test_bookmarks_and_errors_pass_as_bytes(rules: tuple[JSONObject, ...], type_: str, tree: JSONObject) -> None:
    assert await sent(rewriter_of(view_of(*rules)), type_, tree) == frame(type_, tree)


async def test_bookmarks_and_errors_pass_in_every_form() -> None:
    data = await sent(rewriter_of(view_of(HIDE_ALL), METADATA), "BOOKMARK", BOOKMARK)
    assert data is not None
    assert decoded(data, METADATA) == {
        "type": "BOOKMARK",
        "object": {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": BOOKMARK["metadata"]},
    }
    data = await sent(rewriter_of(view_of(HIDE_ALL), METADATA), "ERROR", GONE)
    assert data == frame("ERROR", GONE)
    data = await sent(rewriter_of(view_of(HIDE_ALL), BINARY), "BOOKMARK", BOOKMARK)
    assert data is not None
    assert decoded(data, BINARY)["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    data = await sent(rewriter_of(view_of(HIDE_ALL), BINARY), "ERROR", GONE)
    assert data is not None
    assert decoded(data, BINARY)["object"]["code"] == 410
    assert await sent(rewriter_of(view_of(HIDE_ALL), TABLE), "ERROR", GONE) == frame("ERROR", GONE)


async def test_the_first_table_that_is_sent_has_the_columns_of_a_dropped_one() -> None:
    rewriter = rewriter_of(view_of(HIDE_BACK), TABLE)
    assert await sent(rewriter, "ADDED", table_of(pod("hidden", "back"), COLUMNS)) is None
    first, second = [await sent(rewriter, "ADDED", table_of(pod(name))) for name in ("a", "b")]
    assert first is not None
    assert second is not None
    assert decoded(first, TABLE)["object"]["columnDefinitions"] == COLUMNS
    assert decoded(second, TABLE)["object"]["columnDefinitions"] is None


async def test_a_bookmark_with_the_columns_names_them_for_later_tables() -> None:
    rewriter = rewriter_of(view_of(MOVE), TABLE)
    bookmark = table_of(BOOKMARK | {"metadata": {"resourceVersion": "12", "name": ""}}, COLUMNS)
    assert await sent(rewriter, "BOOKMARK", bookmark) == frame("BOOKMARK", bookmark)
    data = await sent(rewriter, "ADDED", table_of(pod("a")))
    assert data is not None
    assert len(decoded(data, TABLE)["object"]["rows"][0]["cells"]) == len(COLUMNS)


async def test_a_table_row_of_an_object_that_becomes_hidden_shows_only_its_name() -> None:
    rewriter = rewriter_of(view_of(HIDE_BACK), TABLE, {WEB}, include="Metadata")
    data = await sent(rewriter, "MODIFIED", table_of(pod(tier="back"), COLUMNS))
    assert data is not None
    (row,) = decoded(data, TABLE)["object"]["rows"]
    assert row["cells"] == ["web-0", "<unknown>", "<unknown>"]
    assert (row["object"]["kind"], row["object"]["metadata"]["name"]) == ("PartialObjectMetadata", "web-0")


OWNERS = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}]


@pytest.mark.parametrize(
    ("rules", "shown"),
    [
        pytest.param((HIDE_BACK,), True, id="owners stay, so that controllers find the owner of a deleted object"),
        pytest.param((HIDE_BACK, rule({"remove": ["metadata.ownerReferences"]}, name="x")), False, id="owners that a rule removes do not"),
    ],
)
async def test_the_deletion_of_a_hidden_object_names_its_owners(rules: tuple[JSONObject, ...], shown: bool) -> None:
    tree = pod(tier="back", ownerReferences=OWNERS, annotations={"secret": "1"}, managedFields=[{"manager": "m"}], generateName="web-")
    data = await sent(rewriter_of(view_of(*rules), PLAIN, {WEB}), "MODIFIED", tree)
    assert data is not None
    metadata = decoded(data, PLAIN)["object"]["metadata"]
    assert metadata.pop("ownerReferences", None) == (OWNERS if shown else None)
    assert set(metadata) == {"name", "namespace", "uid", "resourceVersion", "creationTimestamp"}


async def test_rules_that_always_hide_an_object_need_no_memory_of_the_client() -> None:
    view, visible = view_of(rule(match=[{"names": ["web-*"]}])), set[Key]()
    rewriter = rewriter_of(view, PLAIN, visible)
    assert await sent(rewriter, "DELETED", pod("web-0")) is None
    assert await sent(rewriter, "DELETED", pod("db-0")) == frame("DELETED", pod("db-0"))
    assert await sent(rewriter, "MODIFIED", pod("db-0")) == frame("MODIFIED", pod("db-0"))
    assert (view.is_constant, visible) == (True, set())


async def test_a_selector_of_the_client_is_evaluated_on_what_the_client_sees() -> None:
    rewriter = rewriter_of(view_of(rule({"set": {"metadata.labels.tier": "none"}}), query="labelSelector=tier%3Dfront"))
    assert await sent(rewriter, "ADDED", pod(tier="front")) is None
    view = view_of(rule({"set": {"metadata.labels.tier": "front"}}), query="labelSelector=tier%3Dfront")
    data = await sent(rewriter_of(view), "MODIFIED", pod(tier="back"))
    assert data is not None
    assert decoded(data, PLAIN)["type"] == "ADDED"


async def test_dry_run_sends_everything_as_it_is() -> None:
    rewriter = rewriter_of(view_of(HIDE_ALL, dry_run=True))
    for type_ in ("ADDED", "MODIFIED", "DELETED"):
        assert await sent(rewriter, type_, pod()) == frame(type_, pod())


FAILING = rule({"jsonPatch": [{"op": "remove", "path": "/spec/absent"}]}, name="fails")


@pytest.mark.parametrize("form", [pytest.param(form, id=form.form or form.media_type) for form in (PLAIN, METADATA, BINARY, TABLE)])
async def test_a_rule_that_fails_shows_nothing_of_the_object(form: Form) -> None:
    tree = pod(tier="secret")
    with pytest.raises(ApiError) as raised:
        await sent(rewriter_of(view_of(FAILING), form), "ADDED", table_of(tree, COLUMNS) if form.is_table else tree)
    assert raised.value.status.code == 500
    assert "rule fails of the proxy failed" in str(raised.value)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"rubbish", id="no JSON"),
        pytest.param(b'{"type":"ADDED"', id="a cut event"),
        pytest.param(b'{"object":{}}', id="an event without a type"),
        pytest.param(b'{"type":"ADDED","object":[]}', id="an object that is a list"),
        pytest.param(b'{"type":"ADDED","object":{"metadata":[]}}', id="metadata that is a list"),
        pytest.param(b'{"type":"ADDED","object":{"metadata":{"labels":{"tier":1}}}}', id="a label that is a number"),
        pytest.param(b'{"type":"ADDED","object":' + b'{"a":' * 200_000 + b"1" + b"}" * 200_001, id="an object that nests too deeply"),
        pytest.param(b'{"type":"ADDED"}', id="an event without an object"),
        pytest.param(b'{"type":"ADDED","object":{"kind":"Pod"}}', id="an object without metadata"),
    ],
)
@pytest.mark.parametrize("hiding", [pytest.param(HIDE_BACK, id="by label"), pytest.param(HIDE_BY_CONDITION, id="by condition")])
@pytest.mark.parametrize("form", [pytest.param(form, id=form.form or form.media_type) for form in (PLAIN, METADATA, BINARY, TABLE)])
async def test_a_frame_that_is_no_event_is_an_error_of_the_server(form: Form, hiding: JSONObject, data: bytes) -> None:
    with pytest.raises(ApiError) as raised:
        await waited(rewriter_of(view_of(hiding), form), data)
    assert raised.value.status.code == 502


async def test_a_kind_without_protobuf_form_is_not_acceptable_for_a_client_that_accepts_nothing_else() -> None:
    tree = pod() | {"kind": "Widget", "apiVersion": "example.com/v1"}
    with pytest.raises(ApiError) as raised:
        await sent(rewriter_of(view_of(MOVE), BINARY), "ADDED", tree)
    assert raised.value.status.code == 406
