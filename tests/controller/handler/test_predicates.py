"""Predicates: which events are worth a reconcile, decided from heads alone."""

from typing import Any, cast

import msgspec
import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.cache import EventType, Head, InformerEvent
from kubeloop.cache.blobs.blob_store import BlobStore
from kubeloop.cache.blobs.head import HeadReader, StringInterner
from kubeloop.controller import (
    Predicate,
    deletion,
    generation_changed,
    labels_changed,
    labels_match,
    path_changed,
    resource_version_changed,
    to_controller,
)
from kubeloop.meta import ObjectKey

_READER = HeadReader("v1", "ConfigMap", ("data",), BlobStore(), StringInterner())


def head(
    version: int = 1, *, uid: str = "u", generation: int = 1, labels: dict[str, str] | None = None, data: str = "", **metadata: Any
) -> Head:
    document = {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {
            "name": "c",
            "namespace": "shop",
            "uid": uid,
            "resourceVersion": str(version),
            "generation": generation,
            "labels": labels or {},
            **metadata,
        },
        "data": {"k": data},
    }
    raw = msgspec.json.encode(document)
    return _READER.head(_READER.projection.object(raw), memoryview(raw), None)


def update(old: Head, new: Head, kind: EventType = EventType.MODIFIED) -> InformerEvent[ConfigMap]:
    return InformerEvent(kind, new, old, cast("Any", None))


def added(new: Head) -> InformerEvent[ConfigMap]:
    return InformerEvent(EventType.ADDED, new, None, cast("Any", None))


SAME = head()


@pytest.mark.parametrize(
    ("predicate", "event", "expected"),
    [
        pytest.param(generation_changed, added(SAME), True, id="a new object passes every predicate about changes"),
        pytest.param(generation_changed, update(SAME, head(2)), False, id="a change of status does not change the generation"),
        pytest.param(generation_changed, update(SAME, head(2, generation=2)), True, id="a change of the spec does"),
        pytest.param(
            generation_changed, update(SAME, head(2, uid="v")), True, id="a recreated object passes though its generation is the same"
        ),
        pytest.param(generation_changed, InformerEvent(EventType.DELETED, SAME, SAME, cast("Any", None)), True, id="a deletion passes"),
        pytest.param(resource_version_changed, update(SAME, SAME, EventType.RESYNC), False, id="a resync changes no version"),
        pytest.param(resource_version_changed, update(SAME, head(2)), True, id="any write changes it"),
        pytest.param(labels_changed, update(SAME, head(2)), False, id="labels are the same"),
        pytest.param(labels_changed, update(SAME, head(2, labels={"a": "b"})), True, id="a label was added"),
        pytest.param(path_changed("data"), update(SAME, head(2)), False, id="what stands at the path is the same"),
        pytest.param(path_changed("data"), update(SAME, head(2, data="x")), True, id="what stands at the path has changed"),
        pytest.param(labels_match("a=b"), added(head(labels={"a": "b"})), True, id="the object matches"),
        pytest.param(labels_match("a=b"), added(SAME), False, id="the object does not match"),
        pytest.param(labels_match("a=b"), update(head(labels={"a": "b"}), SAME), True, id="the object did match before"),
        pytest.param(deletion, update(SAME, head(2)), False, id="an update is no deletion"),
        pytest.param(deletion, update(SAME, head(2, deletionTimestamp="2026-01-01T00:00:00Z")), True, id="a deletion began"),
        pytest.param(~labels_changed & ~generation_changed, update(SAME, head(2)), True, id="not and and"),
        pytest.param(labels_changed | resource_version_changed, update(SAME, head(2)), True, id="or"),
    ],
)
def test_predicate(predicate: Predicate, event: InformerEvent[ConfigMap], expected: bool) -> None:
    assert predicate(event) is expected


def test_combined_predicates_ask_for_the_paths_of_both() -> None:
    assert (path_changed("spec.a") & ~path_changed("spec.b")).paths == ("spec.a", "spec.b")


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        pytest.param({"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "controller": True}, ["o"], id="the controller is enqueued"),
        pytest.param({"apiVersion": "v1", "kind": "ConfigMap", "name": "o"}, [], id="an owner that is no controller is not"),
        pytest.param(
            {"apiVersion": "v1beta1", "kind": "ConfigMap", "name": "o", "controller": True}, ["o"], id="the version does not matter"
        ),
        pytest.param({"apiVersion": "apps/v1", "kind": "ConfigMap", "name": "o", "controller": True}, [], id="the group does"),
        pytest.param({"apiVersion": "v1", "kind": "Secret", "name": "o", "controller": True}, [], id="and the kind"),
    ],
)
def test_owner(reference: dict[str, Any], expected: list[str]) -> None:
    child = head(ownerReferences=[{"uid": "x", **reference}])
    assert to_controller(ConfigMap)(child) == [ObjectKey("", "shop", name) for name in expected]
    assert to_controller(ConfigMap, namespaced=False)(child) == [ObjectKey("", "", name) for name in expected]
