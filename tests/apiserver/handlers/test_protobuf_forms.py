"""Protobuf of stored objects: made once for each revision, and the same as the codec would make it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kubeloop.apiserver.handlers.protobuf_forms import ProtobufEncoder
from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.apiserver.server.bootstrap import builtin_registry
from kubeloop.apiserver.storage import KeyValue, MemoryStorage
from kubeloop.codec import protobuf
from kubeloop.endpoints.encoding import stored_form
from kubeloop.meta.kinds import GroupVersionKind, GroupVersionResource
from kubeloop.schema import builtin
from kubeloop.timing import FakeClock

CONFIG_MAP: dict[str, Any] = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "n"}, "data": {"k": "v"}}


@pytest.fixture
def resource() -> ServedResource:
    found = builtin_registry(builtin(), FakeClock()).get(GroupVersionResource("", "v1", "configmaps"))
    assert found is not None
    return found


@pytest.fixture
def forms() -> ProtobufEncoder:
    return ProtobufEncoder(Objects(MemoryStorage(FakeClock())))


def stored(revision: int, **data: str) -> KeyValue:
    value = stored_form({**CONFIG_MAP, "data": data or CONFIG_MAP["data"]}, "v1", "ConfigMap")
    return KeyValue("/registry/core/configmaps/n/a", value, 1, revision)


def shown(revision: int) -> dict[str, Any]:
    return {**CONFIG_MAP, "metadata": {**CONFIG_MAP["metadata"], "resourceVersion": str(revision)}}


def test_an_object_a_list_and_an_event_hold_the_same(forms: ProtobufEncoder, resource: ServedResource) -> None:
    single, page = forms.object(resource, stored(7)), forms.page(resource, "ConfigMapList", {"resourceVersion": "9"}, [stored(7)])
    assert single is not None
    assert page is not None
    assert protobuf.decode(single) == shown(7)
    listed = protobuf.decode(page)
    assert (listed["kind"], listed["metadata"]) == ("ConfigMapList", {"resourceVersion": "9"})
    assert listed["items"] == [{name: value for name, value in shown(7).items() if name not in ("kind", "apiVersion")}]
    (frame,) = protobuf.split_frames(forms.event("ADDED", resource, stored(7)))
    assert protobuf.decode_event(frame) == {"type": "ADDED", "object": shown(7)}


def test_a_revision_is_encoded_once(forms: ProtobufEncoder, resource: ServedResource, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    encode = protobuf.encode_message

    def counted(gvk: GroupVersionKind, obj: dict[str, Any]) -> bytes:
        calls.append(gvk)
        return encode(gvk, obj)

    monkeypatch.setattr(protobuf, "encode_message", counted)
    for _ in range(3):
        forms.object(resource, stored(7))
        forms.page(resource, "ConfigMapList", {}, [stored(7)])
        forms.event("MODIFIED", resource, stored(7))
    assert len(calls) == 1
    forms.object(resource, stored(8))
    assert len(calls) == 2


def test_another_state_at_the_same_revision_is_another(forms: ProtobufEncoder, resource: ServedResource) -> None:
    """A watch shows an object that leaves its selection as it was, at the revision at which it left."""
    one, other = forms.object(resource, stored(7, k="before")), forms.object(resource, stored(7, k="after"))
    assert one != other


def test_what_the_codec_cannot_say_has_no_form(forms: ProtobufEncoder, resource: ServedResource) -> None:
    kv = stored(7)
    strange = replace(kv, value=kv.value.replace(b'"data"', b'"unknown"'))
    assert forms.object(resource, strange) is None
    assert forms.page(resource, "ConfigMapList", {}, [strange]) is None
