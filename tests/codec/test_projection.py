"""Frames, projections and list pages: whatever the shape of the bytes, the values read are those in the bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.codec import frames as frames_module
from kubeloop.codec.frames import FrameSplitter
from kubeloop.codec.list_pages import ListSplitter
from kubeloop.codec.paths import EACH, parse_path
from kubeloop.codec.projection import Projection
from kubeloop.codec.pruning import Pruning
from kubeloop.meta import DecodeError

POD: dict[str, Any] = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": {
        "name": "web-0",
        "namespace": "shop",
        "uid": "u1",
        "resourceVersion": "7",
        "generation": 3,
        "labels": {"app": "web", "example.com/tier": "front"},
        "annotations": {"a/b": "1"},
        "ownerReferences": [{"uid": "o1"}, {"uid": "o2"}],
        "deletionTimestamp": "2026-01-01T00:00:00Z",
    },
    "spec": {"nodeName": "n1", "containers": [{"image": "i", "ports": [{"containerPort": 80}, {"containerPort": 81}]}, {"image": "j"}]},
    "status": {"ready": True},
}


def encoded(tree: Any, spaced: bool = False) -> bytes:
    data = msgspec.json.encode(tree)
    return msgspec.json.format(data, indent=2) if spaced else data


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param("spec.nodeName", "n1", id="a field"),
        pytest.param("$.spec.nodeName", "n1", id="as JSONPath writes it"),
        pytest.param("status.ready", True, id="a boolean stays one"),
        pytest.param("spec.containers[*].image", ("i", "j"), id="of every item of a list"),
        pytest.param("spec.containers[*].ports[*].containerPort", (80, 81), id="of every item of lists in lists"),
        pytest.param('metadata.labels["example.com/tier"]', "front", id="a label, whose bytes the head keeps undecoded"),
        pytest.param("metadata.ownerReferences[*].uid", ("o1", "o2"), id="within the owners"),
        pytest.param("metadata.annotations['a/b']", "1", id="a key with a slash"),
        pytest.param("metadata.labels", POD["metadata"]["labels"], id="a whole map"),
        pytest.param("spec.containers", POD["spec"]["containers"], id="a whole list"),
        pytest.param("metadata.generation", 3, id="a field that the head has anyway"),
        pytest.param("kind", "Pod", id="the kind"),
        pytest.param("spec.missing.deeper", None, id="an absent field is None"),
        pytest.param("spec.missing[*].x", (), id="no list is no items"),
        pytest.param(
            "spec.containers[*].ports", ([{"containerPort": 80}, {"containerPort": 81}],), id="an item without the field is left out"
        ),
        pytest.param("spec.containers[*].resources.limits", (), id="so is one without its parent"),
    ],
)
def test_a_path_reads(path: str, expected: Any) -> None:
    projection = Projection([path])
    assert projection.values(projection.object(encoded(POD))) == (expected,)


def test_many_paths_are_read_in_one_pass_and_in_their_order() -> None:
    projection = Projection(["spec.nodeName", "spec", "spec.containers[*].image", "spec.nodeName"])
    assert projection.paths == ("spec.nodeName", "spec", "spec.containers[*].image")
    assert projection.values(projection.object(encoded(POD))) == ("n1", POD["spec"], ("i", "j"))


def test_a_path_is_parsed_into_names_and_each() -> None:
    assert parse_path('.spec["a.b"][*].c-d') == ("spec", "a.b", EACH, "c-d")


@pytest.mark.parametrize("path", ["", "$", "[*].a", "a..b", "a[0]", "a b", "a[*", "metadata"])
def test_a_malformed_path_is_refused_with_its_text(path: str) -> None:
    with pytest.raises(ValueError, match="path"):
        Projection([path])


@pytest.mark.parametrize(
    "strange",
    [
        pytest.param({"spec": None}, id="a null struct"),
        pytest.param({"spec": [1]}, id="a list for a struct"),
        pytest.param({"spec": {"nodeName": "n1", "containers": {"image": "x"}}}, id="a map for a list"),
        pytest.param({"spec": {"nodeName": "n1", "containers": [5, None, {"image": "i"}]}}, id="scalars among structs"),
        pytest.param({"metadata": {**POD["metadata"], "generation": "three"}}, id="text for a number"),
        pytest.param({"metadata": {**POD["metadata"], "labels": None}}, id="null labels"),
    ],
)
def test_a_field_of_an_unexpected_type_reads_as_absent_and_the_rest_is_read(strange: dict[str, Any]) -> None:
    projection = Projection(["spec.nodeName", "spec.containers[*].image"])
    projected = projection.object(encoded({**POD, **strange}))
    node, images = projection.values(projected)
    assert (projected.metadata.name, projected.kind) == ("web-0", "Pod")
    assert node == ("n1" if isinstance(strange.get("spec", POD["spec"]), dict) else None)
    assert images in ((), ("i",), ("i", "j"))


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"])
@pytest.mark.parametrize(
    "shape",
    [
        pytest.param(lambda kind, pod: b'{"type":"%b","object":%b}' % (kind, pod), id="as servers write it"),
        pytest.param(lambda kind, pod: b'{"object":%b,"type":"%b"}' % (pod, kind), id="in another order"),
        pytest.param(lambda kind, pod: b'{ "type": "%b", "object": %b }' % (kind, pod), id="with spaces"),
        pytest.param(lambda kind, pod: b'{"type":"%b","object": %b}' % (kind, pod), id="with a space before the object"),
        pytest.param(lambda kind, pod: b'{"type":"\\u00%02x%b","object":%b}' % (kind[0], kind[1:], pod), id="with an escape in its type"),
        pytest.param(lambda kind, pod: b'{"type":"{","type":"%b","object":%b}' % (kind, pod), id="with its type twice"),
        pytest.param(lambda kind, pod: b'{"type":"%b","object":%b,"more":{}}' % (kind, pod), id="with a key behind"),
        pytest.param(lambda kind, pod: b'{"type":"%b","object":%b}\r' % (kind, pod), id="with a carriage return"),
    ],
)
def test_the_objects_bytes_are_exactly_those_of_the_frame(kind: str, shape: Any) -> None:
    pod = encoded(POD)
    read, projected, document = Projection(["spec.nodeName"]).event(shape(kind.encode(), pod))
    assert (read, projected.metadata.resource_version, bytes(document)) == (kind, "7", pod)


@pytest.mark.parametrize(
    "frame", [b"<html>", b"{}", b"[]", b'{"type":"ADDED"}', b'{"type":"ADDED","object":[]}', b'{"type":"ADDED","object":{}', b"\xff\xfe"]
)
def test_an_invalid_event_is_refused(frame: bytes) -> None:
    with pytest.raises(DecodeError):
        Projection().event(frame)


def test_an_object_that_is_no_object_is_refused() -> None:
    for document in (b"5", b"[", b"nonsense"):
        with pytest.raises(DecodeError):
            Projection().object(document)


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    chunks, at = [], 0
    for size in [*sizes, len(data)]:
        chunks.append(data[at : at + size])
        at += size
    return [chunk for chunk in chunks if chunk]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=30).filter(lambda each: b"\n" not in each), max_size=8), st.lists(st.integers(1, 40), max_size=20))
def test_frames_come_whole_and_in_order_wherever_the_chunks_were_cut(lines: list[bytes], sizes: list[int]) -> None:
    cutter = FrameSplitter()
    data = b"".join(line + b"\n" for line in lines)
    assert [bytes(frame) for chunk in cut(data, sizes) for frame in cutter.feed(chunk)] == [line for line in lines if line]
    assert cutter.pending == 0


def test_a_frame_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames_module, "MAX_FRAME", 1000)
    cutter = FrameSplitter()
    cutter.feed(b"x" * 900)
    with pytest.raises(DecodeError, match="not a watch"):
        cutter.feed(b"x" * 200)


#: Inside an item there may be what looks like the border between two.
TRAP = [{"metadata": {"name": "inner"}}, {"metadata": {"name": "other"}}]
ITEMS = st.lists(
    st.builds(
        lambda name, trap, text: {"metadata": {"name": name}, "spec": {"templates": trap}, "text": text},
        st.text("abc", min_size=1, max_size=3),
        st.sampled_from([[], TRAP]),
        st.sampled_from(["", '},{"metadata":', "]}", '"items":[', "\n"]),
    ),
    max_size=8,
)


def read_all(body: bytes, sizes: list[int]) -> tuple[list[tuple[str, bytes]], str, str, str]:
    projection = Projection()
    splitter = ListSplitter(projection.object)
    found = [(read.metadata.name, bytes(document)) for chunk in cut(body, sizes) for read, document in splitter.feed(chunk)]
    rest, metadata, kind = splitter.finish()
    found += [(read.metadata.name, bytes(document)) for read, document in rest]
    return found, metadata.resource_version, metadata.continue_, kind


@settings(max_examples=120, deadline=None)
@given(ITEMS, st.lists(st.integers(1, 120), max_size=20), st.booleans(), st.booleans())
def test_a_list_gives_each_item_once_however_it_is_written_and_cut(items: list[Any], sizes: list[int], spaced: bool, last: bool) -> None:
    metadata = {"resourceVersion": "9", "continue": "token"}
    head = {"kind": "PodList", "apiVersion": "v1", "metadata": metadata}
    tree = {"kind": "PodList", "items": items, "metadata": metadata} if last else {**head, "items": items}
    found, version, token, kind = read_all(encoded(tree, spaced) + b"\n", sizes)
    assert [name for name, _ in found] == [item["metadata"]["name"] for item in items]
    assert [msgspec.json.decode(document) for _, document in found] == items
    assert (version, token, kind) == ("9", "token", "PodList")


def test_items_come_while_the_list_arrives() -> None:
    body = encoded({"kind": "PodList", "metadata": {}, "items": [{"metadata": {"name": f"p{n}"}, "text": "x" * 1000} for n in range(100)]})
    splitter = ListSplitter(Projection().object)
    assert len(splitter.feed(body[: len(body) // 2])) == 49


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"kind":"PodList","items":[{"metadata":{"name":"a"}},{"metadata":', id="cut off between items"),
        pytest.param(b'{"kind":"PodList","metadata":{}', id="cut off before the items"),
        pytest.param(b"", id="empty"),
        pytest.param(b"<html>", id="no JSON"),
        pytest.param(b'{"items":5}', id="items of another type"),
    ],
)
def test_an_invalid_list_is_refused(body: bytes) -> None:
    with pytest.raises(DecodeError):
        read_all(body, [])


def test_no_items_and_null_items_are_an_empty_list() -> None:
    assert read_all(b'{"kind":"PodList","metadata":{"resourceVersion":"3"},"items":null}', [])[:2] == ([], "3")
    assert read_all(b'{"kind":"PodList","metadata":{"resourceVersion":"3"},"items":[]}', [])[:2] == ([], "3")


SECRET = b'"kind":"Secret","data":{"password":"hunter2"}'


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda: Projection().event(b"{" + SECRET), id="half a frame"),
        pytest.param(lambda: Projection().event(b"[{" + SECRET + b"}]"), id="a frame that is a list"),
        pytest.param(lambda: Projection().object(b"[{" + SECRET + b"}]"), id="an object that is a list"),
        pytest.param(lambda: Pruning(["spec"]).apply(b"[{" + SECRET + b"}]"), id="an object to prune that is a list"),
        pytest.param(lambda: _page(b"{" + SECRET), id="half a list"),
    ],
)
def test_an_error_about_bytes_does_not_show_them(read: Callable[[], object]) -> None:
    with pytest.raises(DecodeError) as caught:
        read()
    assert "hunter2" not in str(caught.value)


def _page(body: bytes) -> object:
    splitter = ListSplitter(bytes)
    splitter.feed(body)
    return splitter.finish()
