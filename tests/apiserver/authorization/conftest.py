"""Requests to the server under test as a user whom its administrator impersonates."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kubeloop.meta import ApiError
from kubeloop.transport import Transport
from tests.servers import ServerUnderTest

RBAC = "/apis/rbac.authorization.k8s.io/v1"
GROUP = "rbac.authorization.k8s.io"
#: Seconds until a real server must know of a role that it stored.
_LONG = 20.0


class As:
    """Answers as (status, body). ``names`` of cluster-wide objects go with the test."""

    def __init__(self, transport: Transport, namespace: str) -> None:
        self.transport = transport
        self.namespace = namespace
        self._made: list[str] = []

    async def __call__(
        self, method: str, path: str, body: Any = None, *, user: str = "", group: str = "", content: str = "application/json", **more: str
    ) -> tuple[int, Any]:
        headers = {"Impersonate-User": user, "Impersonate-Group": group, **{name.replace("_", "-"): one for name, one in more.items()}}
        sent = None if body is None else json.dumps(body).encode()
        headers = {name: value for name, value in headers.items() if value}
        try:
            found = await self.transport.request(method, path, body=sent, headers=headers, content_type=content)
        except ApiError as refused:
            return refused.status.code, {"message": refused.status.message, "reason": refused.status.reason}
        return found.status, json.loads(found.body)

    async def role(self, name: str, *rules: dict[str, Any], everywhere: bool = False, labels: dict[str, str] | None = None) -> None:
        await self._put(
            "clusterroles" if everywhere else "roles", {"metadata": {"name": name, "labels": labels or {}}, "rules": list(rules)}
        )

    async def bind(self, name: str, user: str, *, everywhere: bool = False) -> None:
        """The role ``name`` to ``user``, by a binding of the same name."""
        role = {"apiGroup": GROUP, "kind": "ClusterRole" if everywhere else "Role", "name": name}
        subject = {"apiGroup": GROUP, "kind": "User", "name": user}
        kind = "clusterrolebindings" if everywhere else "rolebindings"
        await self._put(kind, {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]})

    async def _put(self, kind: str, body: dict[str, Any]) -> None:
        path = f"{RBAC}/{kind}" if kind.startswith("cluster") else f"{RBAC}/namespaces/{self.namespace}/{kind}"
        status, answer = await self("POST", path, body)
        assert status == 201, answer
        if kind.startswith("cluster"):
            self._made.append(f"{path}/{body['metadata']['name']}")

    async def until(self, user: str, *, group: str = "", allowed: bool = True, **attributes: str) -> None:
        """Until the server knows of what was written: the embedded one does when it has answered, a real one soon."""
        # The API group that is asked about is ``of``.
        asked = {"group": attributes.pop("of", ""), **attributes}
        spec = {"user": user, "groups": [group] if group else [], "resourceAttributes": asked}
        async with asyncio.timeout(_LONG):
            while True:
                _, answer = await self("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": spec})
                if answer["status"]["allowed"] is allowed:
                    return
                await asyncio.sleep(0.05)

    async def tidy(self) -> None:
        for path in self._made:
            await self("DELETE", path)


@pytest.fixture
async def as_(server: ServerUnderTest, namespace: str) -> AsyncIterator[As]:
    async with Transport(server.config) as transport:
        found = As(transport, namespace)
        yield found
        await found.tidy()


def rule(verbs: str, resources: str, group: str = "", *names: str) -> dict[str, Any]:
    found: dict[str, Any] = {"verbs": verbs.split(), "apiGroups": [group], "resources": resources.split()}
    return {**found, "resourceNames": list(names)} if names else found
