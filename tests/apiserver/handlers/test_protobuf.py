"""Protobuf over the wire: bodies, answers, lists, watches and Statuses, beside the JSON that they stand for."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from kubeloop.codec import protobuf
from tests.apiserver.conftest import CONFIGMAPS, PODS, PROTOBUF, TABLE, Api

HEADERS = {"Authorization": "Bearer admin-token"}


async def send(session: aiohttp.ClientSession, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, str, bytes]:
    sent = {**HEADERS, **{name.replace("_", "-"): value for name, value in headers.items()}}
    async with session.request(method, path, data=body, headers=sent) as answer:
        return answer.status, answer.headers["Content-Type"], await answer.read()


async def test_an_object_sent_and_read_in_protobuf_is_the_same_as_in_json(api: Api) -> None:
    pod: dict[str, Any] = {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": "p", "labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "100m"}}}]},
    }
    status, content_type, body = await send(api.session, "POST", PODS, protobuf.encode(pod), Content_Type=PROTOBUF, Accept=PROTOBUF)
    assert (status, content_type) == (201, PROTOBUF)
    assert protobuf.decode(body) == (await api("GET", f"{PODS}/p")).body


async def test_a_list_and_a_watch_come_in_protobuf(api: Api) -> None:
    made = (await api.create("a", data={"k": "v"})).body
    _, _, listed = await send(api.session, "GET", CONFIGMAPS, Accept=PROTOBUF)
    assert protobuf.decode(listed)["items"] == [{name: made[name] for name in ("metadata", "data")}]
    async with api.session.get(f"{CONFIGMAPS}?watch=1", headers={**HEADERS, "Accept": f"{PROTOBUF};stream=watch"}) as answer:
        assert answer.headers["Content-Type"] == f"{PROTOBUF};stream=watch"
        data = await answer.content.readany()
    assert [protobuf.decode_event(frame) for frame in protobuf.split_frames(data)] == [{"type": "ADDED", "object": made}]


async def test_a_refusal_is_a_status_in_protobuf(api: Api) -> None:
    status, content_type, body = await send(api.session, "GET", f"{CONFIGMAPS}/nosuch", Accept=PROTOBUF)
    assert (status, content_type) == (404, PROTOBUF)
    assert protobuf.decode(body)["message"] == 'configmaps "nosuch" not found'


async def test_options_of_a_deletion_are_read_from_protobuf(api: Api) -> None:
    await api.create("a")
    options = protobuf.encode({"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]})
    assert (await send(api.session, "DELETE", f"{CONFIGMAPS}/a", options, Content_Type=PROTOBUF))[0] == 200
    assert (await api("GET", f"{CONFIGMAPS}/a")).status == 200


@pytest.mark.parametrize("accept", [f"{PROTOBUF}, application/json", f"application/json, {PROTOBUF}"])
async def test_the_first_that_is_accepted_is_sent(api: Api, accept: str) -> None:
    assert (await send(api.session, "GET", CONFIGMAPS, Accept=accept))[1] == accept.partition(",")[0]


async def test_a_table_has_no_protobuf_form(api: Api) -> None:
    form = TABLE.removeprefix("application/json")
    assert (await api("GET", CONFIGMAPS, accept=f"{PROTOBUF}{form}")).status == 406
    assert (await api("GET", CONFIGMAPS, accept=f"{PROTOBUF}{form},{TABLE}")).body["kind"] == "Table"


def body(api_version: str, kind: str, raw: bytes) -> bytes:
    """A message in an envelope, however malformed it is."""

    def block(number: int, content: bytes) -> bytes:
        return bytes((number << 3 | 2, len(content))) + content

    return b"k8s\0" + block(1, block(1, api_version.encode()) + block(2, kind.encode())) + block(2, raw)


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        pytest.param(
            b"hello",
            "the object provided is unrecognized (must be of type ConfigMap): provided data does not appear to be a protobuf message, "
            "expected prefix [107 56 115 0] (68656c6c6f)",
            id="bytes that are no protobuf",
        ),
        pytest.param(
            b"k8s\0", "the object provided is unrecognized (must be of type ConfigMap): empty body (6b387300)", id="an empty envelope"
        ),
        pytest.param(
            body("v1", "ConfigMap", b"\x08\x01"),
            'ConfigMap in version "v1" cannot be handled as a ConfigMap: proto: ConfigMap.metadata: wrong wire type 0',
            id="a malformed message",
        ),
        pytest.param(
            body("v1", "Secret", b""),
            'Secret in version "v1" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): unknown conversion',
            id="another kind",
        ),
        pytest.param(
            body("v1", "Nope", b""),
            'Nope in version "v1" cannot be handled as a ConfigMap: no kind "Nope" is registered for version "v1" in scheme '
            '"pkg/runtime/scheme.go:111"',
            id="a kind that does not exist",
        ),
    ],
)
async def test_a_body_that_is_not_the_object_is_refused(api: Api, sent: bytes, message: str) -> None:
    status, _, answer = await send(api.session, "POST", CONFIGMAPS, sent, Content_Type=PROTOBUF, Accept=PROTOBUF)
    assert (status, protobuf.decode(answer)["message"]) == (400, message)


async def test_options_of_another_kind_are_refused(api: Api) -> None:
    status, _, answer = await send(
        api.session, "DELETE", f"{CONFIGMAPS}/a", body("v1", "Pod", b"\xff"), Content_Type=PROTOBUF, Accept=PROTOBUF
    )
    message = 'no kind "Pod" is registered for version "v1" in scheme "pkg/runtime/scheme.go:111"'
    assert (status, protobuf.decode(answer)["message"]) == (400, message)


async def test_a_body_that_does_not_say_its_kind_is_of_the_kind_of_its_path(api: Api) -> None:
    status, _, _ = await send(api.session, "POST", CONFIGMAPS, body("", "", b"\x0a\x03\x0a\x01a"), Content_Type=PROTOBUF)
    assert status == 201
    assert (await api("GET", f"{CONFIGMAPS}/a")).status == 200


async def test_a_watch_of_metadata_comes_in_protobuf(api: Api) -> None:
    form = ";as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
    await api.create("a")
    async with api.session.get(f"{CONFIGMAPS}?watch=1", headers={**HEADERS, "Accept": f"{PROTOBUF}{form}"}) as answer:
        data = await answer.content.readany()
    (event,) = [protobuf.decode_event(frame) for frame in protobuf.split_frames(data)]
    assert (event["type"], event["object"]["kind"], event["object"]["apiVersion"]) == ("ADDED", "PartialObjectMetadata", "meta.k8s.io/v1")


CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"


async def test_custom_resources_are_not_taken_in_protobuf_but_their_definitions_are(api: Api) -> None:
    names = {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}
    schema = {"openAPIV3Schema": {"type": "object"}}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": names,
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }
    status, _, _ = await send(api.session, "POST", CRDS, protobuf.encode(definition), Content_Type=PROTOBUF)
    assert status == 201
    async with asyncio.timeout(5):
        while (await send(api.session, "GET", WIDGETS))[0] == 404:  # served when it is established, a moment later
            pass
    sent = body("example.com/v1", "Widget", b"")
    status, _, answer = await send(api.session, "POST", WIDGETS, sent, Content_Type=PROTOBUF, Accept=f"{PROTOBUF},application/json")
    assert (status, protobuf.decode(answer)["reason"]) == (415, "UnsupportedMediaType")
    assert (await send(api.session, "GET", WIDGETS, Accept=PROTOBUF))[0] == 406
