"""Protobuf over the wire: bodies, answers, lists, watches and Statuses, beside the JSON that they stand for."""

from __future__ import annotations

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


async def test_an_object_sent_and_read_in_protobuf_is_the_one_that_json_shows(api: Api) -> None:
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
