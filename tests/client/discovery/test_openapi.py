"""OpenAPI v3 documents: one for each group version, asked for once as long as it stays the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kubeloop.client import Client
from kubeloop.client.discovery.openapi import OpenApiDocuments
from kubeloop.meta import DecodeError, GroupVersion, GroupVersionKind, UnknownKind
from kubeloop.transport import Transport
from tests.faults import FaultServer, Received, Reply

APPS = GroupVersion("apps", "v1")


@pytest.mark.server
class TestAgainstAServer:
    async def test_a_schema_is_found_by_its_kind(self, client: Client) -> None:
        schema = await client.mapper.openapi.schema(GroupVersionKind("apps", "v1", "Deployment"))
        assert {"apiVersion", "kind", "metadata", "spec", "status"} <= set(schema["properties"])
        assert APPS in await client.mapper.openapi.group_versions()

    async def test_a_kind_that_is_not_served_has_none(self, client: Client) -> None:
        with pytest.raises(UnknownKind, match='no OpenAPI schema of "Deploymnt" in apps/v1'):
            await client.mapper.openapi.schema(GroupVersionKind("apps", "v1", "Deploymnt"))
        with pytest.raises(UnknownKind, match=r"no OpenAPI document of example\.com/v9"):
            await client.mapper.openapi.document(GroupVersion("example.com", "v9"))


class Server:
    """Documents whose hash is their text; ``behind`` is what the index still says."""

    def __init__(self) -> None:
        self.text = "one"
        self.behind = ""
        self.asked: list[str] = []

    def __call__(self, received: Received) -> Reply:
        self.asked.append(received.target)
        if received.path == "/openapi/v3":
            said, self.behind = self.behind or self.text, ""
            return Reply(body={"paths": {"apis/apps/v1": {"serverRelativeURL": f"/openapi/v3/apis/apps/v1?hash={said}"}}})
        if received.query != f"hash={self.text}":
            return Reply(301, headers={"Location": f"/openapi/v3/apis/apps/v1?hash={self.text}"})
        return Reply(body={"openapi": "3.0.0", "info": {"title": self.text}, "big": 12345678901234567890, "float": 1.0})


async def title(documents: OpenApiDocuments) -> str:
    return str((await documents.document(APPS))["info"]["title"])


async def test_a_document_is_requested_once_until_its_hash_changes() -> None:
    server = Server()
    async with FaultServer(answer=server) as listening, Transport(listening.config()) as transport:
        documents = OpenApiDocuments(transport)
        assert [await title(documents), await title(documents)] == ["one", "one"]
        assert server.asked == ["/openapi/v3", "/openapi/v3/apis/apps/v1?hash=one"]
        documents.forget()
        assert await title(documents) == "one"
        assert server.asked[2:] == ["/openapi/v3"]
        server.text = "two"
        documents.forget()
        assert await title(documents) == "two"


async def test_documents_are_kept_on_disk_by_their_hashes(tmp_path: Path) -> None:
    server = Server()
    async with FaultServer(answer=server) as listening, Transport(listening.config()) as transport:
        for text, asked in (("one", 1), ("one", 0), ("two", 1), ("two", 0)):
            server.text, server.asked = text, []
            documents = OpenApiDocuments(transport)
            documents.keep_on_disk(tmp_path)
            assert await title(documents) == text
            assert len(server.asked) == 1 + asked
        [file] = (one for one in tmp_path.rglob("*") if one.is_file())
        file.write_bytes(b"damaged")
        documents = OpenApiDocuments(transport)
        documents.keep_on_disk(tmp_path)
        assert await title(documents) == "two"


async def test_a_document_that_changed_since_the_index_was_read_is_found() -> None:
    server = Server()
    server.text, server.behind = "two", "one"
    async with FaultServer(answer=server) as listening, Transport(listening.config()) as transport:
        assert await title(OpenApiDocuments(transport)) == "two"
    assert server.asked[-1] == "/openapi/v3/apis/apps/v1?hash=two"


async def test_an_empty_document_is_that_of_definitions_that_go_and_is_not_kept(tmp_path: Path) -> None:
    server = Server()

    def empty(received: Received) -> Reply:
        return server(received) if received.path == "/openapi/v3" else Reply(body=b"")

    answer: Callable[[Received], Reply] = empty
    async with FaultServer(answer=lambda received: answer(received)) as listening, Transport(listening.config()) as transport:
        documents = OpenApiDocuments(transport)
        documents.keep_on_disk(tmp_path)
        with pytest.raises(UnknownKind, match="no longer has an OpenAPI document of apis/apps/v1"):
            await documents.document(APPS)
        answer = server
        assert await title(documents) == "one"


@pytest.mark.parametrize(
    ("reply", "error", "words"),
    [
        pytest.param(Reply(404), UnknownKind, "no OpenAPI v3 documents", id="an old server"),
        pytest.param(Reply(body=b"<html>"), DecodeError, "not an index of OpenAPI documents", id="no server of Kubernetes"),
        pytest.param(
            Reply(body={"paths": {"apis/apps/v1": {"serverRelativeURL": "https://elsewhere/x"}}}),
            DecodeError,
            "not a path on the server itself",
            id="an index that leads elsewhere",
        ),
    ],
)
async def test_an_index_that_is_none_says_so(reply: Reply, error: type[Exception], words: str) -> None:
    async with FaultServer(reply, reply) as listening, Transport(listening.config()) as transport:
        with pytest.raises(error, match=words):
            await OpenApiDocuments(transport).document(APPS)
