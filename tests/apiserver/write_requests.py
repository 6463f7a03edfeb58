"""Write requests for tests of strategies, which look at few of their fields."""

from __future__ import annotations

from typing import Any

from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.apiserver.registry.strategy import Strategy
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.endpoints.access import User
from kubeloop.meta.kinds import GroupVersionResource
from kubeloop.schema import TypeSchema

RESOURCE = ServedResource(
    gvr=GroupVersionResource("example.com", "v1", "things"),
    kind="Thing",
    singular="thing",
    namespaced=True,
    verbs=("create", "update"),
    schema=TypeSchema(type="object"),
    strategy_source=Strategy,
)


def write_request(*, namespace: str = "", subresource: str = "", sent: Any = None) -> WriteRequest:
    """Return a write request of a user without a name for a resource that nothing serves."""
    return WriteRequest(RESOURCE, namespace, "", User(""), subresource, sent=sent)
