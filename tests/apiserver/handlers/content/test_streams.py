"""Watches in each form: media types, protobuf frames, bookmarks, initial events, metadata only."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubeloop.codec import protobuf
from tests.apiserver.handlers.content.conftest import FORM, JSON, PROTOBUF, YAML, Wire

pytestmark = pytest.mark.server

STATE = "sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&fieldSelector=metadata.name%3Da"


async def watched(wire: Wire, accept: str, query: str = STATE) -> tuple[str, list[dict[str, Any]]]:
    """Content type and events of a watch of one second."""
    answer = await wire("GET", f"configmaps?watch=1&timeoutSeconds=1&{query}", accept=accept)
    assert answer.status == 200
    return answer.content_type, [protobuf.decode_event(frame) for frame in protobuf.split_frames(answer.body)]


async def test_a_stream_of_protobuf_says_what_json_says(wire: Wire) -> None:
    made = (await wire.create("a", k="v")).tree
    content_type, events = await watched(wire, f"{PROTOBUF};stream=watch,{JSON}")
    assert content_type == f"{PROTOBUF};stream=watch"
    assert events[0] == {"type": "ADDED", "object": made}
    assert events[1]["type"] == "BOOKMARK"
    assert events[1]["object"]["kind"] == "ConfigMap"
    assert events[1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_metadata_is_streamed_in_protobuf(wire: Wire) -> None:
    made = (await wire.create("a", k="v")).tree
    content_type, events = await watched(wire, f"{PROTOBUF}{FORM}PartialObjectMetadata")
    assert content_type == f"{PROTOBUF};stream=watch"
    metadata = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": made["metadata"]}
    assert events[0] == {"type": "ADDED", "object": metadata}
    assert [event["object"]["kind"] for event in events] == ["PartialObjectMetadata"] * 2


async def test_changes_are_streamed_in_protobuf(wire: Wire) -> None:
    made = (await wire.create("a", k="v")).tree
    merge = "application/merge-patch+json"
    changed = (await wire("PATCH", "configmaps/a", b'{"data":{"k":"w"}}', content_type=merge)).tree
    await wire("DELETE", "configmaps/a")
    version = made["metadata"]["resourceVersion"]
    _, events = await watched(wire, PROTOBUF, f"resourceVersion={version}&fieldSelector=metadata.name%3Da")
    assert [event["type"] for event in events] == ["MODIFIED", "DELETED"]
    assert events[0]["object"] == changed
    gone = events[1]["object"]
    assert (gone["data"], int(gone["metadata"]["resourceVersion"])) == ({"k": "w"}, int(gone["metadata"]["resourceVersion"]))
    assert int(gone["metadata"]["resourceVersion"]) > int(changed["metadata"]["resourceVersion"])


async def test_an_expired_version_is_an_error_in_protobuf(wire: Wire) -> None:
    answer = await wire("GET", "configmaps?watch=1&resourceVersion=nonsense", accept=PROTOBUF)
    assert answer.content_type == PROTOBUF
    assert answer.tree["kind"] == "Status"


async def test_a_stream_of_metadata_lists_says_nothing(wire: Wire) -> None:
    await wire.create("a")
    answer = await wire("GET", f"configmaps?watch=1&timeoutSeconds=1&{STATE}", accept=f"{JSON}{FORM}PartialObjectMetadataList")
    assert (answer.status, answer.content_type, answer.body) == (200, JSON, b"")


async def test_a_table_without_objects_still_tells_where_the_state_ends(wire: Wire) -> None:
    await wire.create("a", k="v")
    answer = await wire("GET", f"configmaps?watch=1&timeoutSeconds=1&includeObject=None&{STATE}", accept=f"{JSON}{FORM}Table")
    added, end = (json.loads(line) for line in answer.body.splitlines()[:2])
    assert added["object"]["rows"][0]["object"] is None
    assert end["object"]["rows"][0]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_what_a_watch_asks_for_is_looked_at_before_the_form_of_its_stream(wire: Wire) -> None:
    found = await wire("GET", "configmaps?watch=1&fieldSelector=x%3Dy", accept=YAML)
    assert (found.status, '"x" is not a known field selector' in found.body.decode()) == (400, True)
    assert (await wire("GET", "configmaps?watch=1", accept=YAML)).status == 406
