"""Lists as a client sees them: however the body arrives, the result is the rewritten list."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.endpoints.tables import partial_list
from kubeloop.meta.errors import ApiError
from kubeloop.proxy.encodings import Form
from kubeloop.proxy.lists import COMMIT, ListRewriter, begin, joined, rewritten_list
from kubeloop.proxy.view import ClientView
from kubeloop.types import JSONObject
from tests.proxy.rules.rule_texts import rule
from tests.proxy.samples import JSON_TYPE, list_of, pod, view_of

PLAIN, METADATA = Form(JSON_TYPE), Form(JSON_TYPE, "PartialObjectMetadataList")
HIDE_BACK = rule(match=[{"labelSelector": "tier=back"}])
HIDE_BY_CONDITION = rule(when="object.kind == 'Pod' && object.metadata.labels.tier == 'back'")
HIDE_BY_PYTHON = rule({"python": {"callable": "tests.proxy.hiding:hide_back"}})
MOVE = rule({"set": {"spec.nodeName": "hidden"}}, name="move", match=[{"labelSelector": "tier=moved"}])
PODS = [
    pod("a"),
    pod("b", "back"),
    pod("c", "moved"),
    pod("d", "back"),
    pod("e"),
    pod('},{"metadata":{', "back"),
    pod('\U0001f600\\"', "moved"),
]


async def rewritten(body: bytes, view: ClientView, form: Form = PLAIN, cuts: Sequence[int] = ()) -> tuple[bytes, ListRewriter]:
    """Return the rewritten list, and its rewriter. ``cuts`` are the indexes at which the body is split."""
    rewriter = ListRewriter(view, form, collect=True)

    async def chunks() -> AsyncIterator[bytes]:
        at = 0
        for cut in [*sorted(cuts), len(body)]:
            if cut > at:
                yield body[at:cut]
                at = cut

    return b"".join([part async for part in rewritten_list(chunks(), rewriter)]), rewriter


def without_kind(tree: JSONObject) -> JSONObject:
    return {name: value for name, value in tree.items() if name not in ("kind", "apiVersion")}


def expected_items(pods: Sequence[JSONObject]) -> list[JSONObject]:
    """Return what HIDE_BACK and MOVE leave of the pods."""
    shown = [tree for tree in pods if tree["metadata"]["labels"]["tier"] != "back"]
    moved = [
        tree | {"spec": {**tree["spec"], "nodeName": "hidden"}} if tree["metadata"]["labels"]["tier"] == "moved" else tree for tree in shown
    ]
    return [without_kind(tree) for tree in moved]


@pytest.mark.parametrize(
    "hiding",
    [
        pytest.param(HIDE_BACK, id="by label"),
        pytest.param(HIDE_BY_CONDITION, id="by a condition on the kind, which items do not have"),
        pytest.param(HIDE_BY_PYTHON, id="by Python"),
    ],
)
async def test_a_list_has_the_visible_objects_as_the_client_sees_them(hiding: JSONObject) -> None:
    data, rewriter = await rewritten(list_of(*PODS, version="9"), view_of(hiding, MOVE))
    assert json.loads(data) == {
        "kind": "PodList",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": "9"},
        "items": expected_items(PODS),
    }
    assert rewriter.version == "9"
    assert rewriter.keys == {("shop", tree["metadata"]["name"]) for tree in expected_items(PODS)}


def typed_body(pods: Sequence[JSONObject], **metadata: Any) -> bytes:
    return list_of(*pods, **metadata)


def custom_body(pods: Sequence[JSONObject], **metadata: Any) -> bytes:
    """Return a list as a server writes one of custom resources: sorted by key, kind and metadata after the items."""
    items = [dict(sorted(tree.items())) for tree in pods]
    tree = {"apiVersion": "v1", "items": items, "kind": "PodList", "metadata": {"resourceVersion": "9", **metadata}}
    return msgspec.json.encode(tree)


def spaced_body(pods: Sequence[JSONObject], **metadata: Any) -> bytes:
    """Return a list with spaces, whose items a splitter cannot find."""
    return json.dumps(json.loads(custom_body(pods, **metadata)), indent=1).encode()


BODIES = [typed_body, custom_body, spaced_body]
pods = st.lists(
    st.builds(
        pod,
        name=st.text(max_size=8),
        tier=st.sampled_from(["front", "back", "moved"]),
        annotations=st.dictionaries(st.text(max_size=4), st.text(max_size=9), max_size=2),
    ),
    max_size=6,
)


@given(st.data(), pods, st.sampled_from(BODIES), st.sampled_from([PLAIN, METADATA]))
async def test_a_body_that_is_split_anywhere_gives_what_the_whole_gives(
    data: st.DataObject, trees: list[JSONObject], form_body: Any, form: Form
) -> None:
    body = form_body(trees)
    cuts = data.draw(st.lists(st.integers(1, max(1, len(body) - 1)), max_size=8))
    view = view_of(HIDE_BACK, MOVE)
    whole, first = await rewritten(body, view, form)
    split, second = await rewritten(body, view, form, cuts)
    assert json.loads(split) == json.loads(whole)
    assert (second.version, second.continue_token, second.keys) == (first.version, first.continue_token, first.keys)
    if form is PLAIN:
        found = json.loads(split)["items"]
        assert [without_kind(item) for item in found] == expected_items(trees)


@pytest.mark.parametrize("form_body", [pytest.param(make, id=make.__name__) for make in BODIES])
@pytest.mark.parametrize("size", [1, 7, 100_000])
async def test_the_lists_metadata_stays_without_the_count_of_hidden_objects(form_body: Any, size: int) -> None:
    body = form_body(PODS, remainingItemCount=17, **{"continue": "token=="}, selfLink="/x")
    data, rewriter = await rewritten(body, view_of(HIDE_BACK, MOVE), PLAIN, range(size, len(body), size))
    tree = json.loads(data)
    assert tree["metadata"] == {"resourceVersion": "9", "continue": "token==", "selfLink": "/x"}
    assert (tree["kind"], tree["apiVersion"]) == ("PodList", "v1")
    assert [without_kind(item) for item in tree["items"]] == expected_items(PODS)
    assert (rewriter.version, rewriter.continue_token) == ("9", "token==")


@pytest.mark.parametrize("form_body", [pytest.param(make, id=make.__name__) for make in BODIES])
async def test_a_list_of_metadata_has_partial_objects(form_body: Any) -> None:
    data, _ = await rewritten(form_body(PODS), view_of(HIDE_BACK, MOVE), METADATA)
    tree = json.loads(data)
    assert (tree["kind"], tree["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    assert {(item["kind"], item["apiVersion"]) for item in tree["items"]} == {("PartialObjectMetadata", "meta.k8s.io/v1")}
    assert [item["metadata"]["name"] for item in tree["items"]] == [item["metadata"]["name"] for item in expected_items(PODS)]
    assert not any("spec" in item for item in tree["items"])


async def test_an_object_without_a_change_has_the_bytes_of_the_server() -> None:
    item = b'{"metadata": {"name":"a", "labels":{"tier":"\\u0066ront"}} , "x":1.50}'
    body = b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[' + item + b"," + item + b"]}\n"
    data, _ = await rewritten(body, view_of(HIDE_BACK, MOVE))
    assert data.count(item) == 2


async def test_items_of_custom_resources_keep_their_kind() -> None:
    moved = pod("a", "moved") | {"kind": "Widget", "apiVersion": "example.com/v1"}
    body = msgspec.json.encode(
        {"apiVersion": "example.com/v1", "items": [moved], "kind": "WidgetList", "metadata": {"resourceVersion": "9"}}
    )
    data, _ = await rewritten(body, view_of(MOVE))
    (item,) = json.loads(data)["items"]
    assert (item["kind"], item["apiVersion"], item["spec"]["nodeName"]) == ("Widget", "example.com/v1", "hidden")


async def test_all_objects_hidden_is_an_empty_list() -> None:
    data, rewriter = await rewritten(list_of(*PODS, **{"continue": "x"}), view_of(rule()))
    assert json.loads(data) == {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "9", "continue": "x"}, "items": []}
    assert rewriter.keys == set()


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[]}', id="no items"),
        pytest.param(b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":null}', id="null for items"),
        pytest.param(b'{"apiVersion":"v1","items":null,"kind":"PodList","metadata":{"resourceVersion":"9"}}', id="null before the kind"),
    ],
)
@pytest.mark.parametrize("size", [1, 1000])
async def test_an_empty_list_stays_one(body: bytes, size: int) -> None:
    data, rewriter = await rewritten(body, view_of(HIDE_BACK), PLAIN, range(size, len(body), size))
    assert json.loads(data) == json.loads(body)
    assert (rewriter.version, rewriter.keys) == ("9", set())


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(list_of, id="of a built-in kind"),
        pytest.param(lambda *pods: custom_body(pods, **{"continue": ""}), id="of a custom kind"),
    ],
)
@pytest.mark.parametrize(
    "pods",
    [
        pytest.param([], id="no object"),
        pytest.param([pod("a", "back")], id="a hidden object"),
        pytest.param([pod("a")], id="an object"),
    ],
)
@pytest.mark.parametrize("size", [1, 1000])
async def test_a_list_of_metadata_is_that_of_the_visible_objects(body: Any, pods: list[JSONObject], size: int) -> None:
    sent = body(*pods)
    data, _ = await rewritten(sent, view_of(HIDE_BACK), METADATA, range(size, len(sent), size))
    shown = [tree for tree in pods if tree["metadata"]["labels"]["tier"] != "back"]
    assert json.loads(data) == partial_list(shown, {"resourceVersion": "9"})


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_metadata_has_the_version_that_the_client_asked_for(version: str) -> None:
    data, _ = await rewritten(list_of(pod("a")), view_of(HIDE_BACK), Form(JSON_TYPE, "PartialObjectMetadataList", version))
    tree = json.loads(data)
    assert [tree["apiVersion"], tree["items"][0]["apiVersion"]] == [f"meta.k8s.io/{version}"] * 2


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"rubbish", id="no JSON"),
        pytest.param(b"[]", id="an array"),
        pytest.param(b"null", id="null"),
        pytest.param(b'{"kind":"PodList","items":[1]}', id="an item that is a number"),
        pytest.param(
            b'{"kind":"PodList","items":[{"metadata":{"name":"a","labels":{"tier":"x"}}},"x",{"metadata":{"name":"b"}}]}',
            id="an item that is a text",
        ),
        pytest.param(
            b'{"kind":"PodList","items":[{"metadata":{"name":"a","labels":{"tier":"x"}}},{"spec":{}},{"metadata":{"name":"b"}}]}',
            id="an item without metadata",
        ),
        pytest.param(
            b'{"kind":"PodList","items":[{"metadata":{"name":"a","labels":{"tier":1}}},{"metadata":{}}]}', id="a label that is a number"
        ),
        pytest.param(b'{"kind":"PodList","items":[{"metadata":[]},{"metadata":{}}]}', id="metadata that is a list"),
        pytest.param(b'{"kind":"PodList","items":{"a":{"metadata":{"name":"a"}}}}', id="items that are an object"),
        pytest.param(
            b'{"kind":"PodList","items":[{"metadata":{"name":"a","labels":{"tier":"x"}}},{"metadata":{"name":"b"', id="a cut item"
        ),
        pytest.param(b'{"kind":"PodList","items":[{"metadata":{"name":"a","labels":{"tier":"x"}}}', id="a list without its end"),
        pytest.param(b'{"kind":"PodList","metadata":{"resourceVersion":9},"items":[]}', id="a version that is a number"),
        pytest.param(
            b'{"kind":"PodList","items":[{"metadata":{"name":"a"},"x":' + b"[" * 200_000 + b"]" * 200_000 + b"}]}",
            id="an item that nests too deeply",
        ),
        pytest.param(b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}', id="a Status"),
        pytest.param(b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-0"},"spec":{"nodeName":"secret"}}', id="an object"),
        pytest.param(b'{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{},"rows":[{"cells":["secret"]}]}', id="a Table"),
    ],
)
@pytest.mark.parametrize("hiding", [pytest.param(HIDE_BACK, id="by label"), pytest.param(HIDE_BY_CONDITION, id="by condition")])
@pytest.mark.parametrize("size", [1, 100_000])
async def test_a_body_that_is_no_list_of_objects_is_an_error_of_the_server(body: bytes, size: int, hiding: JSONObject) -> None:
    with pytest.raises(ApiError) as raised:
        await rewritten(body, view_of(hiding), PLAIN, range(size, len(body), size))
    assert raised.value.status.code == 502


async def test_a_rule_that_fails_shows_nothing_of_the_object() -> None:
    failing = rule({"jsonPatch": [{"op": "remove", "path": "/spec/absent"}]}, name="fails", match=[{"names": ["c"]}])
    with pytest.raises(ApiError, match="rule fails of the proxy failed") as raised:
        await rewritten(list_of(*PODS), view_of(failing))
    assert (raised.value.status.code, "moved" in str(raised.value)) == (500, False)


async def test_memory_does_not_grow_with_the_list() -> None:
    item = msgspec.json.encode(without_kind(pod("a", "moved", annotations={"filler": "x" * 4000})))

    async def peak(count: int) -> int:
        async def chunks() -> AsyncIterator[bytes]:
            yield b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":['
            for _ in range(count - 1):
                yield item + b","
            yield item + b"]}\n"

        rewriter = ListRewriter(view_of(MOVE), PLAIN, collect=False)
        tracemalloc.start()
        size = 0
        async for part in rewritten_list(chunks(), rewriter):
            size += len(part)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert size > count * len(item)
        return most

    await peak(5)  # parts that are made once
    assert await peak(200) < 3 * await peak(5)


async def parts_of(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def test_the_beginning_of_a_response_is_collected_until_it_is_sent() -> None:
    assert await begin(parts_of(b"a", b"b")) == (b"ab", True)
    parts = parts_of(b"a" * COMMIT, b"b", b"c")
    first, complete = await begin(parts)
    assert (len(first), complete) == (COMMIT, False)
    assert b"".join([part async for part in joined(first, parts)]) == first + b"bc"
