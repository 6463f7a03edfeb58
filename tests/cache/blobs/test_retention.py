"""Retention: tables of documents and their stored parts."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.cache.blobs.blob_store import BlobStore
from kubeloop.cache.blobs.head import Head, HeadReader, StringInterner
from kubeloop.cache.blobs.retention import DocumentTrimmer, Retention
from kubeloop.codec.projection import Projection
from kubeloop.meta import DecodeError

JSON = dict[str, Any]
ENTRY = {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:managedFields": {}, "f:metadata": {"k:]}": '"managedFields":['}}}


def pod(**metadata: Any) -> JSON:
    named = {"name": "a", "namespace": "shop", "uid": "u1", "resourceVersion": "7", **metadata}
    spec = {"nodeName": "n1", "containers": [{"name": "app", "image": "web:1", "env": []}, {"name": "side", "image": "log:2"}]}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": named, "spec": spec, "status": {"phase": "Running"}}


def kept(keep: Retention, document: bytes, kind: str = "Pod") -> bytes:
    projected = Projection().object(document)
    return bytes(DocumentTrimmer(keep, "v1", kind).document(projected, memoryview(document)))


def without(tree: JSON) -> JSON:
    metadata = {name: value for name, value in tree["metadata"].items() if name != "managedFields"}
    return {"kind": "Pod", "apiVersion": "v1", **tree, "metadata": metadata}


def bare(tree: JSON) -> JSON:
    return {name: value for name, value in tree.items() if name not in ("kind", "apiVersion")}


ODD = {"managedFields": [ENTRY]}
SHAPES = [
    pytest.param(pod(managedFields=[ENTRY]), id="as Go writes them, last in metadata"),
    pytest.param(pod(managedFields=[]), id="an empty list of them"),
    pytest.param(pod(managedFields=None), id="null in their place"),
    pytest.param(pod(), id="none at all"),
    pytest.param(bare(pod(managedFields=[ENTRY])), id="an item of a list, which has no kind"),
    pytest.param(bare(pod()), id="an item of a list without them"),
    pytest.param(
        {"kind": "Pod", "apiVersion": "v1", "metadata": {"managedFields": [ENTRY], "name": "a"}}, id="first in metadata, sorted keys"
    ),
    pytest.param(
        {"kind": "Pod", "apiVersion": "v1", "metadata": {"annotations": {}, "managedFields": [ENTRY], "name": "a"}}, id="in the middle"
    ),
    pytest.param({"kind": "Pod", "apiVersion": "v1", "metadata": {"managedFields": [ENTRY]}}, id="alone in metadata"),
    pytest.param(
        {"apiVersion": "v1", "data": ODD, "kind": "Pod", "metadata": {"managedFields": [ENTRY], "name": "a"}},
        id="the same list elsewhere before",
    ),
    pytest.param(pod(managedFields=[ENTRY]) | {"status": ODD}, id="the same list elsewhere behind"),
    pytest.param(
        pod(annotations={"x": '"managedFields":[{"manager":"kubectl"}]', "managedFields": "text"}, managedFields=[ENTRY]),
        id="text and keys that look like them",
    ),
    pytest.param(pod(managedFields=[{"manager": 'größe "]}, \\ 世界'}]), id="text with quotes, brackets and every script"),
    pytest.param(pod(managedFields="odd"), id="text in their place"),
]


@pytest.mark.parametrize("tree", SHAPES)
def test_managed_fields_go_and_everything_else_stays_as_it_was(tree: JSON) -> None:
    compact = msgspec.json.encode(tree)
    for document in (compact, msgspec.json.format(compact, indent=2)):
        left = kept(Retention(), document)
        assert msgspec.json.decode(left) == without(tree)
        assert msgspec.json.decode(kept(Retention(managed_fields=True), document)) == {"kind": "Pod", "apiVersion": "v1", **tree}
    if "kind" in tree and "managedFields" not in tree["metadata"]:
        assert kept(Retention(), compact) == compact


def test_without_managed_fields_the_rest_is_the_servers_own_bytes() -> None:
    document = (
        msgspec.json.encode(pod(managedFields=[ENTRY])).replace(b'"n1"', b'"\\u006e1"').replace(b'"phase"', b'"number":1.50e3,"phase"')
    )
    left = kept(Retention(), document)
    assert b'"\\u006e1"' in left
    assert b"1.50e3" in left


NAMES = st.sampled_from(["managedFields", "metadata", "name", "a", "x"])


def trees(names: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    return st.recursive(
        st.none() | st.booleans() | st.integers(-5, 5) | st.text('"[]{},:\\managedFields', max_size=12),
        lambda below: st.lists(below, max_size=3) | st.dictionaries(names, below, max_size=3),
        max_leaves=8,
    )


TREES = trees(NAMES)
#: Inside ObjectMeta no field of a field is called managedFields: the schema of Kubernetes has none.
IN_METADATA = trees(st.sampled_from(["metadata", "name", "a", "x"]))


@settings(max_examples=150)
@given(st.dictionaries(NAMES, TREES, max_size=3), st.dictionaries(NAMES, IN_METADATA, max_size=4), st.booleans(), st.booleans())
def test_whatever_the_object_is_managed_fields_alone_are_cut(before: JSON, metadata: JSON, spaced: bool, first: bool) -> None:
    metadata["name"] = "a"
    rest = {name: value for name, value in before.items() if name != "metadata"}
    tree: JSON = {"kind": "Pod", "apiVersion": "v1"}
    tree |= {"metadata": metadata} | rest if first else rest | {"metadata": metadata}
    document = msgspec.json.encode(tree)
    if spaced:
        document = msgspec.json.format(document, indent=1)
    assert msgspec.json.decode(kept(Retention(), document)) == without(tree)


# --------------------------------------------------------------------------------------------------------- fields and metadata

IDENTITY = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "shop", "uid": "u1", "resourceVersion": "7"}}


@pytest.mark.parametrize(
    ("paths", "tree", "expected"),
    [
        pytest.param(["spec.nodeName"], pod(), {"spec": {"nodeName": "n1"}}, id="a path and the identity, nothing else"),
        pytest.param(
            ["spec.nodeName", "spec.containers[*].image", "status"],
            pod(),
            {"spec": {"nodeName": "n1", "containers": [{"image": "web:1"}, {"image": "log:2"}]}, "status": {"phase": "Running"}},
            id="of each item of a list, and a whole part",
        ),
        pytest.param(
            ["spec.containers", "spec.containers[*].image"],
            pod(),
            {"spec": {"containers": pod()["spec"]["containers"]}},
            id="the wider of two paths",
        ),
        pytest.param(["spec.hostname", "extra.deep.down"], pod(), {"spec": {}}, id="paths that lead nowhere"),
        pytest.param(
            ["spec.nodeName.deeper", "status.phase"], pod(), {"spec": {}, "status": {"phase": "Running"}}, id="a path through text"
        ),
        pytest.param(["spec.containers[*].image"], pod() | {"spec": {"containers": None}}, {"spec": {}}, id="null where a list is wanted"),
        pytest.param(["spec.containers[*].image"], pod() | {"spec": None}, {}, id="null where an object is wanted"),
        pytest.param(["apiVersion", "kind"], pod(), {}, id="fields that are always kept"),
    ],
)
def test_of_an_object_only_the_fields_asked_for_are_kept(paths: list[str], tree: JSON, expected: JSON) -> None:
    compact = msgspec.json.encode(tree)
    for document in (compact, msgspec.json.format(compact, indent=2), msgspec.json.encode(bare(tree))):
        left = msgspec.json.decode(kept(Retention(fields=tuple(paths)), document))
        assert left == IDENTITY | expected


def test_the_identity_is_name_namespace_uid_version_generation_labels_owners_and_deletion() -> None:
    identity = {"generation": 3, "labels": {"app": "web"}, "ownerReferences": [{"uid": "o"}], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    document = msgspec.json.encode(pod(**identity, annotations={"a": "b"}, managedFields=[ENTRY], creationTimestamp="2025-01-01T00:00:00Z"))
    left = msgspec.json.decode(kept(Retention(fields=("status.phase",)), document))
    assert left["metadata"] == IDENTITY["metadata"] | identity  # type: ignore[operator]  # it is a dict
    annotated = msgspec.json.decode(kept(Retention(fields=('metadata.annotations["a"]', "metadata.creationTimestamp")), document))
    assert annotated["metadata"]["annotations"] == {"a": "b"}
    assert annotated["metadata"]["creationTimestamp"] == "2025-01-01T00:00:00Z"


@pytest.mark.parametrize("kind", ["Pod", "PartialObjectMetadata"])
def test_metadata_alone_is_kept_whether_the_server_sends_it_so_or_sends_whole_objects(kind: str) -> None:
    tree = pod(annotations={"a": "b"}, managedFields=[ENTRY], finalizers=["x"])
    if kind != "Pod":
        tree = {"kind": kind, "apiVersion": "meta.k8s.io/v1", "metadata": tree["metadata"]}
    left = msgspec.json.decode(kept(Retention(metadata_only=True), msgspec.json.encode(tree)))
    assert left == {"kind": "Pod", "apiVersion": "v1", "metadata": without(tree)["metadata"]}
    with_managed = msgspec.json.decode(kept(Retention(metadata_only=True, managed_fields=True), msgspec.json.encode(tree)))
    assert with_managed["metadata"] == tree["metadata"]


@pytest.mark.parametrize(
    ("keep", "path", "way"),
    [
        pytest.param(Retention(fields=("spec.nodeName",)), "status.phase", "add it to fields", id="a path beside the fields"),
        pytest.param(Retention(fields=("spec.nodeName",)), "spec", "add it to fields", id="a path that is wider than a field"),
        pytest.param(Retention(metadata_only=True), "spec.nodeName", "whole objects", id="a path outside of metadata"),
    ],
)
def test_a_path_that_is_not_kept_cannot_be_indexed_and_the_error_says_what_to_do(keep: Retention, path: str, way: str) -> None:
    with pytest.raises(ValueError, match=f'path "{path}" is not kept by this informer: .*{way}'):
        HeadReader("v1", "Pod", (path,), BlobStore(), StringInterner(), keep)


def test_paths_that_are_kept_can_be_indexed() -> None:
    keep = Retention(fields=("spec.containers", "metadata.annotations"))
    keep.check(["spec.containers[*].image", 'metadata.annotations["x"]', "metadata.labels.app", "metadata.name", "kind"])
    Retention(metadata_only=True).check(["metadata.annotations", "metadata.creationTimestamp"])
    Retention().check(["status.phase"])


def test_paths_that_disagree_whether_a_field_is_a_list_are_refused() -> None:
    with pytest.raises(ValueError, match="disagree"):
        DocumentTrimmer(Retention(fields=("spec.containers[*].image", "spec.containers.image")), "v1", "Pod")


def test_a_value_that_is_no_object_is_refused_by_every_retention() -> None:
    with pytest.raises(DecodeError):
        DocumentTrimmer(Retention(fields=("spec",)), "v1", "Pod").document(Projection().object(b"{}"), b"[1]")


# ------------------------------------------------------------------------------------------------------------------- transform


def read(keep: Retention, tree: JSON, paths: tuple[str, ...] = ()) -> tuple[Head, JSON]:
    reader = HeadReader("v1", "Pod", paths, BlobStore(), StringInterner(), keep)
    document = msgspec.json.encode(tree)
    head = reader.head(reader.projection.object(document), memoryview(document), None)
    stored: JSON = msgspec.json.decode(head.document())
    return head, stored


def in_place(tree: JSON) -> None:
    tree["spec"] = {"nodeName": tree["spec"]["nodeName"].upper()}
    tree["metadata"]["labels"] = {"made": "here"}


def another(tree: JSON) -> JSON:
    return {**tree, "spec": {"nodeName": "N1"}, "metadata": {**tree["metadata"], "labels": {"made": "here"}}}


@pytest.mark.parametrize("transform", [in_place, another])
def test_a_transform_is_seen_by_store_and_head_and_indexes_alike(transform: Any) -> None:
    head, stored = read(Retention(transform=transform), pod(managedFields=[ENTRY]), ("spec.nodeName",))
    assert stored["spec"] == {"nodeName": "N1"}
    assert head.value("spec.nodeName") == "N1"
    assert head.labels == {"made": "here"}


def test_a_transform_sees_what_the_other_options_left() -> None:
    seen: list[JSON] = []

    def look(tree: JSON) -> None:
        seen.append(msgspec.json.decode(msgspec.json.encode(tree)))

    read(Retention(transform=look), pod(managedFields=[ENTRY]))
    read(Retention(transform=look, fields=("status.phase",)), bare(pod()))
    assert seen == [pod(), IDENTITY | {"status": {"phase": "Running"}}]


@pytest.mark.parametrize(
    "transform",
    [
        pytest.param(lambda tree: tree["nothing"], id="a transform that raises"),
        pytest.param(lambda tree: [tree], id="a transform that returns no object"),
        pytest.param(lambda tree: {**tree, "spec": object()}, id="a transform that returns a value outside JSON"),
        pytest.param(lambda tree: {**tree, "metadata": {**tree["metadata"], "name": "b"}}, id="a transform that renames the object"),
        pytest.param(lambda tree: tree.pop("metadata") and None, id="a transform that removes the identity"),
        pytest.param(lambda tree: {**tree, "kind": "Node"}, id="a transform that changes the kind"),
    ],
)
def test_a_transform_that_fails_keeps_the_object_as_it_was_and_is_reported_once(caplog: pytest.LogCaptureFixture, transform: Any) -> None:
    reader = HeadReader("v1", "Pod", (), BlobStore(), StringInterner(), Retention(transform=transform))
    document = msgspec.json.encode(pod(managedFields=[ENTRY]))
    with caplog.at_level(logging.ERROR, "kubeloop.cache"):
        for _ in range(3):
            head = reader.head(reader.projection.object(document), memoryview(document), None)
            assert msgspec.json.decode(head.document()) == pod()
    assert reader.keeper.failures == 3
    (record,) = caplog.records
    assert "failed for Pod shop/a" in record.getMessage()


def test_equal_options_are_one_key_and_another_transform_is_another() -> None:
    assert hash(Retention(fields=("a.b",), transform=in_place)) == hash(Retention(fields=("a.b",), transform=in_place))
    assert Retention() != Retention(managed_fields=True)
    assert Retention(transform=in_place) != Retention(transform=another)
    assert [
        bool(each.partial)
        for each in (
            Retention(),
            Retention(managed_fields=True),
            Retention(fields=("a",)),
            Retention(metadata_only=True),
            Retention(transform=another),
        )
    ] == [
        False,
        False,
        True,
        True,
        True,
    ]


def test_equal_lists_of_several_objects_are_stored_once() -> None:
    shared = StringInterner()
    reader = HeadReader("v1", "Pod", ("status.conditions[*].type", "status.podIPs[*].ip"), BlobStore(), shared)

    def head(address: str) -> Head:
        document = msgspec.json.encode({"status": {"conditions": [{"type": "Ready"}, {"type": "New"}], "podIPs": [{"ip": address}]}})
        return reader.head(reader.projection.object(document), memoryview(document), None)

    one, other = head("10.0.0.1"), head("10.0.0.2")
    assert one.value("status.conditions[*].type") == ("Ready", "New")
    assert one.value("status.conditions[*].type") is other.value("status.conditions[*].type")
    assert one.value("status.podIPs[*].ip") != other.value("status.podIPs[*].ip")
    values = ({"a": 1},)
    assert shared.items(values) is values, "maps have no hash, and are not shared"
