"""Gets, lists and watches through the pipeline, in front of a scripted API server."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

import msgspec
import pytest

from kubeloop.codec import protobuf
from kubeloop.endpoints.access import User
from kubeloop.meta.errors import TransportError
from kubeloop.proxy.lists import COMMIT
from kubeloop.serving.answer import Aborted, Answer, StreamingResponse
from kubeloop.transport.errors import IncompleteAnswerError
from kubeloop.transport.round_tripper import OutgoingRequest
from kubeloop.types import JSONObject
from tests.proxy.rules.rule_texts import rule
from tests.proxy.samples import (
    JSON_TYPE,
    METADATA,
    METADATA_LIST,
    PODS,
    PROTOBUF,
    TABLE,
    ScriptedAnswer,
    ScriptedProxy,
    body_of,
    events_of,
    frame,
    json_of,
    list_of,
    pod,
)

HIDE_BACK = rule(match=[{"labelSelector": "tier=back"}], name="hide")
MOVE = rule({"set": {"spec.nodeName": "hidden"}}, name="move", match=[{"labelSelector": "tier=moved"}])
FAILS = rule({"jsonPatch": [{"op": "remove", "path": "/spec/absent"}]}, name="fails", match=[{"names": ["last"]}])
FILLER = [pod(f"p{number}", annotations={"filler": "x" * 4000}) for number in range(COMMIT // 4000 + 2)]


def always(*chunks: bytes | Exception, status: int = 200, content_type: str = JSON_TYPE) -> Callable[[OutgoingRequest], ScriptedAnswer]:
    return lambda _: ScriptedAnswer(status, list(chunks), content_type)


def accept_of(request: OutgoingRequest) -> list[str]:
    return [value for name, value in request.headers if name.lower() == "accept"]


def query_of(request: OutgoingRequest) -> dict[str, list[str]]:
    return parse_qs(request.target.partition("?")[2], keep_blank_values=True)


# Get


async def test_an_object_without_a_change_has_the_bytes_of_the_server() -> None:
    body = b'{"kind":"Pod","apiVersion":"v1", "metadata":{"name":"a"},"x":1.50}\n'
    reply = await ScriptedProxy(always(body), HIDE_BACK)(f"{PODS}/a")
    assert await body_of(reply) == body


async def test_a_changed_object_is_written_again() -> None:
    reply = await ScriptedProxy(always(msgspec.json.encode(pod("a", "moved"))), MOVE)(f"{PODS}/a")
    assert (await json_of(reply))["spec"]["nodeName"] == "hidden"


async def test_a_hidden_object_does_not_exist() -> None:
    reply = await ScriptedProxy(always(msgspec.json.encode(pod("web-0", "back"))), HIDE_BACK)(f"{PODS}/web-0")
    assert isinstance(reply, Answer)
    assert reply.body == (
        b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"pods \\"web-0\\" not found","reason":"NotFound",'
        b'"details":{"name":"web-0","kind":"pods"},"code":404}\n'
    )
    assert (reply.status, reply.content_type) == (404, JSON_TYPE)


@pytest.mark.parametrize(
    ("accept", "asked", "content_type"),
    [
        pytest.param("", JSON_TYPE, JSON_TYPE, id="nothing said"),
        pytest.param(JSON_TYPE, JSON_TYPE, JSON_TYPE, id="JSON"),
        pytest.param(f"{PROTOBUF},{JSON_TYPE}", JSON_TYPE, JSON_TYPE, id="protobuf or JSON, as client-go"),
        pytest.param(PROTOBUF, JSON_TYPE, PROTOBUF, id="protobuf only"),
        pytest.param("application/yaml", JSON_TYPE, "application/yaml", id="YAML"),
        pytest.param(f"application/cbor,{JSON_TYPE}", JSON_TYPE, JSON_TYPE, id="CBOR or JSON"),
    ],
)
async def test_media_types(accept: str, asked: str, content_type: str) -> None:
    for target, body in ((f"{PODS}/a", msgspec.json.encode(pod("a", "moved"))), (PODS, list_of(pod("a", "moved"), pod("b", "back")))):
        proxy = ScriptedProxy(always(body), HIDE_BACK, MOVE)
        reply = await proxy(target, Accept=accept)
        assert isinstance(reply, Answer)
        assert (reply.status, reply.content_type, accept_of(proxy.upstream.requests[0])) == (200, content_type, [asked])
        assert b"hidden" in (reply.body or b"")
        assert b"node-7" not in (reply.body or b"")


async def test_protobuf_alone_gets_a_list_of_what_the_client_sees() -> None:
    reply = await ScriptedProxy(always(list_of(pod("a", "moved"), pod("b", "back"))), HIDE_BACK, MOVE)(PODS, Accept=PROTOBUF)
    tree = protobuf.decode(await body_of(reply))
    assert [(item["metadata"]["name"], item["spec"]["nodeName"]) for item in tree["items"]] == [("a", "hidden")]


async def test_a_client_that_accepts_only_cbor_gets_406() -> None:
    for target in (f"{PODS}/a", PODS, f"{PODS}?watch=true"):
        reply = await ScriptedProxy(always(msgspec.json.encode(pod("a"))), HIDE_BACK)(target, Accept="application/cbor")
        assert isinstance(reply, Answer)
        assert reply.status == 406


async def test_headers_that_would_give_unreadable_objects_are_not_passed() -> None:
    proxy = ScriptedProxy(always(list_of()), HIDE_BACK)
    await proxy(
        PODS, Accept_Encoding="gzip", Range="bytes=0-5", If_None_Match='"x"', Authorization="Bearer x", Impersonate_User="root", Via="v"
    )
    names = [name.lower() for name, _ in proxy.upstream.requests[0].headers]
    assert {"accept-encoding", "range", "if-none-match", "authorization"} & set(names) == set()
    assert ("Impersonate-User", "ann") in proxy.upstream.requests[0].headers
    assert names.count("impersonate-user") == 1


# Lists


async def test_a_long_list_that_breaks_off_is_cut_not_short() -> None:
    body = list_of(*FILLER, pod("last"))
    for end in (IncompleteAnswerError("gone"), TransportError("reset")):
        reply = await ScriptedProxy(always(body[: -len(body) // 20], end), HIDE_BACK)(PODS)
        assert isinstance(reply, StreamingResponse)
        with pytest.raises(Aborted):
            await body_of(reply)


async def test_a_rule_that_fails_late_cuts_the_list() -> None:
    body = list_of(*FILLER, *FILLER, pod("last"))
    chunks = [body[at : at + 65536] for at in range(0, len(body), 65536)]
    reply = await ScriptedProxy(always(*chunks), FAILS)(PODS)
    assert isinstance(reply, StreamingResponse)
    with pytest.raises(Aborted):
        await body_of(reply)


@pytest.mark.parametrize("accept", [PROTOBUF, "application/yaml"])
async def test_a_long_list_in_another_media_type_that_breaks_off_is_a_bad_gateway(accept: str) -> None:
    body = list_of(*FILLER, *FILLER, pod("last"))
    chunks: list[bytes | Exception] = [body[at : at + 65536] for at in range(0, len(body), 65536)]
    proxy = ScriptedProxy(always(*chunks[:-1], IncompleteAnswerError("gone")), HIDE_BACK)
    reply = await proxy(PODS, Accept=accept)
    assert isinstance(reply, Answer)
    assert (reply.status, proxy.upstream.answers[0].closed) == (502, True)


async def test_the_count_of_objects_and_the_page_stay_the_clients() -> None:
    proxy = ScriptedProxy(always(list_of(pod("a"), pod("b", "back"), remainingItemCount=5, **{"continue": "t"})), HIDE_BACK)
    tree = await json_of(await proxy(f"{PODS}?limit=2&resourceVersion=4&resourceVersionMatch=NotOlderThan"))
    assert tree["metadata"] == {"resourceVersion": "9", "continue": "t"}
    assert query_of(proxy.upstream.requests[0]) == {"limit": ["2"], "resourceVersion": ["4"], "resourceVersionMatch": ["NotOlderThan"]}


def table_of(*trees: JSONObject) -> bytes:
    rows = [{"cells": [tree["metadata"]["name"], tree["spec"]["nodeName"]], "object": tree} for tree in trees]
    columns = [{"name": "Name", "type": "string"}, {"name": "Node", "type": "string"}]
    head = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": "9", "remainingItemCount": 3}}
    return msgspec.json.encode(head | {"columnDefinitions": columns, "rows": rows})


@pytest.mark.parametrize("query", ["", "?includeObject=None", "?includeObject=Object&limit=3"])
async def test_a_table_is_read_with_its_objects(query: str) -> None:
    proxy = ScriptedProxy(always(table_of(pod("a"), pod("b", "back"), pod("c", "moved"))), HIDE_BACK, MOVE)
    tree = await json_of(await proxy(PODS + query, Accept=f"{TABLE},{JSON_TYPE}"))
    assert query_of(proxy.upstream.requests[0])["includeObject"] == ["Object"]
    assert [row["cells"] for row in tree["rows"]] == [["a", "node-7"], ["c", "hidden"]]
    assert tree["metadata"] == {"resourceVersion": "9"}


async def test_the_table_of_a_hidden_object_does_not_exist() -> None:
    reply = await ScriptedProxy(always(table_of(pod("b", "back"))), HIDE_BACK)(f"{PODS}/b", Accept=f"{TABLE},{JSON_TYPE}")
    assert isinstance(reply, Answer)
    assert reply.status == 404


async def test_a_resource_without_tables_is_sent_as_objects() -> None:
    accept = f"{TABLE},{JSON_TYPE}"
    tree = await json_of(await ScriptedProxy(always(list_of(pod("a"), pod("b", "back"))), HIDE_BACK)(PODS, Accept=accept))
    assert (tree["kind"], [item["metadata"]["name"] for item in tree["items"]]) == ("PodList", ["a"])
    tree = await json_of(await ScriptedProxy(always(msgspec.json.encode(pod("a", "moved"))), MOVE)(f"{PODS}/a", Accept=accept))
    assert (tree["kind"], tree["spec"]["nodeName"]) == ("Pod", "hidden")
    stream = frame("ADDED", pod("a", "moved")) + frame("ADDED", pod("b", "back"))
    events = await events_of(await ScriptedProxy(always(stream), HIDE_BACK, MOVE)(f"{PODS}?watch=true", Accept=accept))
    assert [(event["type"], event["object"]["spec"]["nodeName"]) for event in events] == [("ADDED", "hidden")]


@pytest.mark.parametrize(
    ("accept", "asked"),
    [
        pytest.param(TABLE, TABLE, id="Tables only"),
        pytest.param(f"{TABLE},{TABLE.replace('v1', 'v1beta1')},{JSON_TYPE}", f"{TABLE},{JSON_TYPE}", id="Tables or objects, as kubectl"),
        pytest.param(f"{TABLE},application/yaml", TABLE, id="Tables or YAML"),
    ],
)
async def test_the_server_refuses_tables_for_clients_that_accept_nothing_else(accept: str, asked: str) -> None:
    proxy = ScriptedProxy(always(table_of(pod("a"))), HIDE_BACK)
    await proxy(PODS, Accept=accept)
    assert accept_of(proxy.upstream.requests[0]) == [asked]


async def test_a_custom_kind_for_a_client_that_accepts_only_protobuf_is_not_acceptable() -> None:
    widget = pod("a") | {"kind": "Widget", "apiVersion": "example.com/v1"}
    path = "/apis/example.com/v1/namespaces/shop/widgets"
    for target, body in (
        (path, list_of(widget, kind="WidgetList", api_version="example.com/v1")),
        (f"{path}/a", msgspec.json.encode(widget)),
    ):
        reply = await ScriptedProxy(always(body), HIDE_BACK)(target, Accept=PROTOBUF)
        assert isinstance(reply, Answer)
        assert reply.status == 406


async def test_a_list_of_metadata_has_no_more() -> None:
    reply = await ScriptedProxy(always(list_of(pod("a", "moved"))), MOVE)(PODS, Accept=METADATA_LIST)
    tree = await json_of(reply)
    assert (tree["kind"], list(tree["items"][0])) == ("PartialObjectMetadataList", ["kind", "apiVersion", "metadata"])


async def test_the_header_that_explains_names_the_rules_that_touched_the_objects() -> None:
    body = list_of(pod("a"), pod("b", "back"))
    reply = await ScriptedProxy(always(body), HIDE_BACK, MOVE, explain=True)(PODS)
    assert isinstance(reply, Answer)
    assert ("Kubeloop-Rules", "hide") in reply.headers
    reply = await ScriptedProxy(always(body), HIDE_BACK, MOVE)(PODS)
    assert isinstance(reply, Answer)
    assert "Kubeloop-Rules" not in dict(reply.headers)


async def test_dry_run_changes_nothing() -> None:
    body = list_of(pod("a", "moved"), pod("b", "back"))
    tree = await json_of(await ScriptedProxy(always(body), HIDE_BACK, MOVE, dry_run=True)(PODS))
    assert tree == json.loads(body)


async def test_rules_for_a_group_concern_its_members_only() -> None:
    for_devs = rule(match=[{"userGroups": ["devs"], "labelSelector": "tier=back"}])
    body = list_of(pod("a"), pod("b", "back"))
    for groups, count in ((("devs",), 1), (("ops",), 2)):
        tree = await json_of(await ScriptedProxy(always(body), for_devs, user=User("u", groups))(PODS))
        assert len(tree["items"]) == count


# Watches


async def test_a_watch_without_a_version_begins_with_nothing_seen() -> None:
    stream = frame("ADDED", pod("a")) + frame("ADDED", pod("b", "back")) + frame("MODIFIED", pod("b")) + frame("MODIFIED", pod("a", "back"))
    proxy = ScriptedProxy(always(stream), HIDE_BACK)
    events = await events_of(await proxy(f"{PODS}?watch=true"))
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in events] == [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a")]
    assert len(proxy.upstream.requests) == 1


@pytest.mark.parametrize(
    "query", ["resourceVersion=0", "resourceVersion=9&sendInitialEvents=true", "resourceVersion=9&sendInitialEvents=1", "resourceVersion="]
)
async def test_a_watch_that_begins_with_all_objects_needs_no_list(query: str) -> None:
    proxy = ScriptedProxy(always(frame("DELETED", pod("a"))), HIDE_BACK)
    assert await events_of(await proxy(f"{PODS}?watch=true&{query}")) == []
    assert len(proxy.upstream.requests) == 1


def list_then_watch(stream: bytes, *pages: bytes) -> Callable[[OutgoingRequest], ScriptedAnswer]:
    left = list(pages)

    def script(request: OutgoingRequest) -> ScriptedAnswer:
        return ScriptedAnswer(chunks=[stream if "watch" in query_of(request) else left.pop(0)])

    return script


STREAM = frame("MODIFIED", pod("a", "back")) + frame("MODIFIED", pod("b", "back")) + frame("DELETED", pod("c"))


async def test_a_watch_from_a_version_begins_with_the_visible_objects() -> None:
    proxy = ScriptedProxy(list_then_watch(STREAM, list_of(pod("a"), pod("b", "back"), **{"continue": "t="}), list_of(pod("c"))), HIDE_BACK)
    events = await events_of(await proxy(f"{PODS}?watch=true&resourceVersion=9&labelSelector=app%3Dweb"))
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in events] == [("DELETED", "a"), ("DELETED", "c")]
    first, second, third = map(query_of, proxy.upstream.requests)
    assert first == {"labelSelector": ["app=web"], "resourceVersion": ["9"], "resourceVersionMatch": ["Exact"], "limit": ["500"]}
    assert second == {"labelSelector": ["app=web"], "limit": ["500"], "continue": ["t="]}
    assert third == {"watch": ["true"], "resourceVersion": ["9"], "labelSelector": ["app=web"]}


async def test_a_watch_that_follows_a_list_needs_no_second_one() -> None:
    proxy = ScriptedProxy(list_then_watch(STREAM, list_of(pod("a"), pod("b", "back"), pod("c"))), HIDE_BACK)
    await body_of(await proxy(f"{PODS}?limit=500"))
    events = await events_of(await proxy(f"{PODS}?watch=true&resourceVersion=9"))
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in events] == [("DELETED", "a"), ("DELETED", "c")]
    assert len(proxy.upstream.requests) == 2


async def test_a_version_that_the_server_has_forgotten_is_410() -> None:
    def script(request: OutgoingRequest) -> ScriptedAnswer:
        assert "watch" not in query_of(request)
        return ScriptedAnswer(410, [b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":"Expired","code":410}'])

    reply = await ScriptedProxy(script, HIDE_BACK)(f"{PODS}?watch=true&resourceVersion=9")
    assert isinstance(reply, Answer)
    assert (reply.status, (await json_of(reply))["reason"]) == (410, "Expired")


async def test_a_list_of_visible_objects_that_breaks_off_is_a_bad_gateway() -> None:
    proxy = ScriptedProxy(always(list_of(pod("a"))[:60], IncompleteAnswerError("gone")), HIDE_BACK)
    reply = await proxy(f"{PODS}?watch=true&resourceVersion=9")
    assert isinstance(reply, Answer)
    assert (reply.status, proxy.upstream.answers[0].closed) == (502, True)


@pytest.mark.parametrize(
    ("chunks", "events"),
    [
        pytest.param([frame("ADDED", pod("a"))[:-9]], None, id="a watch that ends in the middle of an event is cut"),
        pytest.param([TransportError("reset")], None, id="a watch that breaks off is cut"),
        pytest.param([b"rubbish\n"], ["ERROR"], id="rubbish is an error event"),
        pytest.param([], [], id="a watch that ends ends"),
        pytest.param([b"\n\n"], [], id="empty lines are nothing"),
    ],
)
async def test_the_end_of_a_watch(chunks: list[bytes | Exception], events: list[str] | None) -> None:
    proxy = ScriptedProxy(always(frame("ADDED", pod("first")), *chunks), HIDE_BACK)
    reply = await proxy(f"{PODS}?watch=true")
    assert isinstance(reply, StreamingResponse)
    assert json.loads(await anext(reply.chunks))["object"]["metadata"]["name"] == "first"
    if events is None:
        with pytest.raises(Aborted):
            await anext(reply.chunks)
    else:
        assert [event["type"] for event in await events_of(reply)] == events
    reply.close()
    assert (proxy.upstream.answers[0].closed, len(proxy.services.watches)) == (True, 0)


@pytest.mark.parametrize(("accept", "media_type"), [(JSON_TYPE, JSON_TYPE), (PROTOBUF, f"{PROTOBUF};stream=watch")])
async def test_a_rule_that_fails_ends_the_watch_with_an_error_event(accept: str, media_type: str) -> None:
    stream = frame("ADDED", pod("a")) + frame("ADDED", pod("last", "secret")) + frame("ADDED", pod("never"))
    reply = await ScriptedProxy(always(stream, stream), FAILS)(f"{PODS}?watch=true", Accept=accept)
    assert isinstance(reply, StreamingResponse)
    assert reply.content_type == media_type
    data = await body_of(reply)
    if accept == PROTOBUF:
        events = [protobuf.decode_event(event) for event in protobuf.split_frames(data)]
    else:
        events = [json.loads(line) for line in data.splitlines()]
    assert [event["type"] for event in events] == ["ADDED", "ERROR"]
    assert events[1]["object"]["code"] == 500
    assert b"secret" not in data


async def test_a_client_that_leaves_ends_the_watch_at_the_server() -> None:
    proxy = ScriptedProxy(always(frame("ADDED", pod("a")), frame("ADDED", pod("b"))), HIDE_BACK)
    reply = await proxy(f"{PODS}?watch=true")
    assert isinstance(reply, StreamingResponse)
    await anext(reply.chunks)
    await reply.chunks.aclose()  # type: ignore[attr-defined]  # it is a generator
    reply.close()
    assert (proxy.upstream.answers[0].closed, len(proxy.services.watches)) == (True, 0)


# Reloads


class Waiting(ScriptedAnswer):
    """A watch whose rules change while the client waits for its second event."""

    def __init__(self, proxy: list[ScriptedProxy], *rules: JSONObject) -> None:
        super().__init__(chunks=[frame("ADDED", pod("a"))])
        self._proxy = proxy
        self._rules = rules
        self._sent = 0

    async def chunk(self, read_timeout: float | None = None) -> bytes:
        self._sent += 1
        if self._sent == 2:
            self._proxy[0].reload(*self._rules)
        return await super().chunk(read_timeout)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param((HIDE_BACK,), (MOVE,), id="other rules"),
        pytest.param((HIDE_BACK,), (), id="no rules any more"),
        pytest.param((), (HIDE_BACK,), id="the first rules"),
        pytest.param((rule(match=[{"resources": ["secrets"]}]),), (HIDE_BACK,), id="rules that did not concern the resource"),
    ],
)
async def test_an_open_watch_ends_with_410_when_the_rules_change(before: tuple[JSONObject, ...], after: tuple[JSONObject, ...]) -> None:
    holder: list[ScriptedProxy] = []
    holder.append(ScriptedProxy(lambda _: Waiting(holder, *after), *before))
    events = await events_of(await holder[0](f"{PODS}?watch=true"))
    assert [event["type"] for event in events] == ["ADDED", "ERROR"]
    assert events[1]["object"]["code"] == 410


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param((HIDE_BACK,), (MOVE,), id="other rules"),
        pytest.param((), (HIDE_BACK,), id="the first rules"),
        pytest.param((rule(match=[{"resources": ["secrets"]}]),), (HIDE_BACK,), id="rules that did not concern the resource"),
    ],
)
@pytest.mark.parametrize("query", ["", "&resourceVersion=9"])
async def test_a_watch_that_opens_while_the_rules_change_is_410(
    before: tuple[JSONObject, ...], after: tuple[JSONObject, ...], query: str
) -> None:
    holder: list[ScriptedProxy] = []

    def script(request: OutgoingRequest) -> Any:
        if "watch" not in query_of(request):
            return ScriptedAnswer(chunks=[list_of(pod("a"))])
        holder[0].reload(*after)
        return ScriptedAnswer(chunks=[frame("ADDED", pod("secret", "back"))])

    holder.append(ScriptedProxy(script, *before))
    reply = await holder[0](f"{PODS}?watch=true{query}")
    assert isinstance(reply, Answer)
    assert (reply.status, holder[0].upstream.answers[-1].closed) == (410, True)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param((HIDE_BACK,), (MOVE,), id="other rules"),
        pytest.param((HIDE_BACK,), (), id="no rules any more"),
        pytest.param((), (HIDE_BACK,), id="the first rules"),
    ],
)
async def test_a_watch_that_continues_a_list_of_earlier_rules_is_410(before: tuple[JSONObject, ...], after: tuple[JSONObject, ...]) -> None:
    proxy = ScriptedProxy(always(list_of(pod("a"))), *before)
    await body_of(await proxy(PODS))
    proxy.reload(*after)
    reply = await proxy(f"{PODS}?watch=true&resourceVersion=9")
    assert isinstance(reply, Answer)
    assert reply.status == 410


async def test_a_list_that_the_rules_change_during_does_not_count_for_a_watch() -> None:
    body = list_of(*FILLER, *FILLER)
    proxy = ScriptedProxy(lambda _: ScriptedAnswer(chunks=[body[:-9], body[-9:]]), HIDE_BACK)
    reply = await proxy(PODS)
    assert isinstance(reply, StreamingResponse)
    proxy.reload(MOVE)
    await body_of(reply)
    reply = await proxy(f"{PODS}?watch=true&resourceVersion=9")
    assert isinstance(reply, Answer)
    assert reply.status == 410


@pytest.mark.parametrize(
    ("target", "form"),
    [
        pytest.param(PODS, METADATA, id="a list as the metadata of one object"),
        pytest.param(f"{PODS}/a", METADATA_LIST, id="an object as a list"),
        pytest.param(f"{PODS}?watch=true", METADATA_LIST, id="an event as a list"),
    ],
)
async def test_the_metadata_of_a_list_is_a_list(target: str, form: str) -> None:
    reply = await ScriptedProxy(always(msgspec.json.encode(pod("a"))), HIDE_BACK)(target, Accept=form)
    assert isinstance(reply, Answer)
    assert reply.status == 406


async def test_an_unknown_part_of_a_row_is_left_to_the_server_to_refuse() -> None:
    proxy = ScriptedProxy(always(b'{"kind":"Status","code":400}', status=400), HIDE_BACK)
    reply = await proxy(f"{PODS}?includeObject=Odd", Accept=TABLE)
    assert isinstance(reply, Answer)
    assert (reply.status, query_of(proxy.upstream.requests[0])["includeObject"]) == (400, ["Odd"])


async def test_a_head_of_objects_tells_nothing() -> None:
    reply = await ScriptedProxy(always(), HIDE_BACK)(f"{PODS}/a", "HEAD")
    assert isinstance(reply, Answer)
    assert reply.status == 405
