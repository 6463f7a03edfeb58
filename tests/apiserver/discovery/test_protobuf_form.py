"""Aggregated discovery in protobuf, byte for byte."""

from __future__ import annotations

import json

import pytest

from kubeloop.apiserver.discovery.documents import encode_discovery
from kubeloop.transport import Transport
from tests.servers import ServerUnderTest

_FORM = "g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@pytest.mark.server
async def test_it_says_in_protobuf_what_it_says_in_json_and_has_the_same_tag(server: ServerUnderTest) -> None:
    async with Transport(server.config) as transport:
        text, packed = [
            await transport.request("GET", "/api", headers={"Accept": f"{media_type};{_FORM}"})
            for media_type in ("application/json", "application/vnd.kubernetes.protobuf")
        ]
    assert packed.headers["Content-Type"] == f"application/vnd.kubernetes.protobuf;{_FORM}"
    assert packed.body == encode_discovery(json.loads(text.body))
    assert packed.headers["ETag"] == text.headers["ETag"]


def test_fields_without_a_value_are_written_empty_and_lists_left_out() -> None:
    tree = {"apiVersion": "apidiscovery.k8s.io/v2", "kind": "APIGroupDiscoveryList", "items": [{"metadata": {"name": "a"}}]}
    metadata = b"\x0a\x01a\x12\x00\x1a\x00\x22\x00\x2a\x00\x32\x00\x38\x00\x42\x00"
    group = b"\x0a" + bytes([len(metadata)]) + metadata
    assert b"\x0a\x06\x0a\x00\x12\x00\x1a\x00\x12" + bytes([len(group)]) + group in encode_discovery(tree)
