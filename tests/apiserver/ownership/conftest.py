"""Requests as several field managers, on the embedded server or a real one, and who owns what in the answers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from kubeloop.client import Client
from kubeloop.merge.fields import FieldSet, path_text
from kubeloop.meta.errors import ApiError
from tests.servers import ServerUnderTest, server_under_test

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"

#: "Apply one" or "Update two status" to the paths that it owns.
Owners = dict[str, list[str]]


@dataclass
class Reply:
    status: int
    body: dict[str, Any]
    warnings: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        return str(self.body["message"])

    @property
    def causes(self) -> list[tuple[str, str]]:
        return [(cause["field"], cause["message"]) for cause in self.body["details"]["causes"]]

    @property
    def entries(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.body["metadata"].get("managedFields", [])
        return found

    @property
    def owners(self) -> Owners:
        return {
            " ".join(filter(None, (entry["operation"], entry.get("manager", ""), entry.get("subresource")))): [
                path_text(path) for path in FieldSet.from_json(entry["fieldsV1"])
            ]
            for entry in self.entries
        }

    @property
    def version(self) -> str:
        return str(self.body["metadata"]["resourceVersion"])


class Managers:
    """Sends requests below ``/api/v1/namespaces/NAMESPACE``; a path that begins with a slash is taken as it is, ``{ns}`` filled in."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace

    async def __call__(
        self, method: str, path: str, body: Any = None, *, content: str = "application/json", headers: Mapping[str, str] | None = None
    ) -> Reply:
        path = path.replace("{ns}", self.namespace)
        path, _, query = path.partition("?")
        whole = path if path.startswith("/") else f"/api/v1/namespaces/{self.namespace}/{path}"
        parameters = dict(one.split("=", 1) for one in query.split("&")) if query else {}
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        try:
            answer = await self.client.transport.request(
                method,
                whole,
                query=parameters,
                body=data,
                content_type=content,
                headers=headers,
            )
        except ApiError as refusal:
            return Reply(refusal.status.code, json.loads(json.dumps(_status(refusal))))
        return Reply(answer.status, json.loads(answer.body), tuple(answer.warnings))

    async def apply(self, manager: str, path: str, body: Any, *, force: bool = False, more: str = "") -> Reply:
        """A server-side apply."""
        return await self("PATCH", f"{path}?fieldManager={manager}{'&force=true' if force else ''}{more}", body, content=APPLY)

    async def merge(self, manager: str, path: str, body: Any) -> Reply:
        """A merge patch."""
        return await self("PATCH", f"{path}?fieldManager={manager}", body, content=MERGE)


def _status(refusal: ApiError) -> dict[str, Any]:
    details = refusal.status.details
    causes = [{"field": one.field, "message": one.message, "reason": one.reason} for one in (details.causes if details else [])]
    return {"message": refusal.status.message, "reason": refusal.status.reason, "details": {"causes": causes}}


@pytest.fixture(scope="session")
def server() -> Iterator[ServerUnderTest]:
    """Without controllers: a garbage collector would take objects whose recorded owners do not exist."""
    with server_under_test(controllers=False) as found:
        yield found


@pytest.fixture
def managers(client: Client, namespace: str) -> Managers:
    return Managers(client, namespace)


def config_map(name: str, data: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    obj: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}}
    return obj if data is None else {**obj, "data": data}
