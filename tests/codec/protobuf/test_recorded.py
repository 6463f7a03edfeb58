"""What a real kube-apiserver answers in protobuf and in JSON is the same object here, both ways.

``samples.json`` holds both answers to the same request, protobuf in base64.
"""

from __future__ import annotations

import base64
import json
from functools import cache
from pathlib import Path

import pytest

from kubeloop.codec import protobuf
from kubeloop.types import JSONObject


@cache
def samples() -> list[tuple[bytes, JSONObject]]:
    found = json.loads(Path(__file__).with_name("samples.json").read_text())
    return [(base64.b64decode(one["protobuf"]), one["json"]) for one in found]


def _id(sample: tuple[bytes, JSONObject]) -> str:
    obj = sample[1]
    return f"{obj['apiVersion']} {obj['kind']} {(obj.get('metadata') or {}).get('name', '')}"


def _as_go_keeps_it(obj: JSONObject) -> JSONObject:
    """Claim templates say their kind in JSON only: protobuf has no place for what a nested object says it is."""
    for claim in obj.get("spec", {}).get("volumeClaimTemplates", ()):
        claim.pop("kind", None)
        claim.pop("apiVersion", None)
    return obj


@pytest.mark.parametrize("sample", samples(), ids=_id)
def test_protobuf_of_a_real_server_reads_as_its_json(sample: tuple[bytes, JSONObject]) -> None:
    data, obj = sample
    assert protobuf.decode(data) == _as_go_keeps_it(json.loads(json.dumps(obj)))


@pytest.mark.parametrize("sample", samples(), ids=_id)
def test_json_of_a_real_server_survives_being_written_as_protobuf(sample: tuple[bytes, JSONObject]) -> None:
    _, obj = sample
    assert protobuf.decode(protobuf.encode(obj)) == _as_go_keeps_it(json.loads(json.dumps(obj)))


def test_writing_does_not_change_the_object() -> None:
    for _, obj in samples():
        before = json.dumps(obj)
        protobuf.encode(obj)
        assert json.dumps(obj) == before


@pytest.mark.parametrize("sample", samples(), ids=_id)
def test_zero_values_that_go_writes_without_need_are_all_that_is_missing(sample: tuple[bytes, JSONObject]) -> None:
    data, obj = sample
    written = protobuf.encode(obj)
    assert len(written) <= len(data)
    assert protobuf.decode(written) == protobuf.decode(data)


def test_frames_of_a_watch_carry_type_and_object() -> None:
    objects = [data for data, obj in samples() if obj["kind"] in ("Pod", "Status")]
    stream = b"".join(protobuf.encode_event("MODIFIED", data) for data in objects)
    frames = list(protobuf.split_frames(stream + b"\0\0"))
    assert [protobuf.decode_event(frame) for frame in frames] == [{"type": "MODIFIED", "object": protobuf.decode(data)} for data in objects]


def test_raw_json_has_the_bytes_that_go_writes() -> None:
    revision = {"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {"name": "r"}, "data": {"b": "<&>\u2028", "a": "ü"}}
    assert b'{"b":"\\u003c\\u0026\\u003e\\u2028","a":"\xc3\xbc"}' in protobuf.encode(revision)
    assert protobuf.decode(protobuf.encode(revision))["data"] == revision["data"]
