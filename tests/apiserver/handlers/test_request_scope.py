"""The request scope, the write requests that it makes, and the paths of the pipeline that are no resources."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kubeloop.apiserver.handlers.routes import NoRoute
from kubeloop.apiserver.handlers.scope import RequestScope
from kubeloop.apiserver.registry.strategy import Strategy
from kubeloop.apiserver.server.pipeline import NonResourcePaths
from kubeloop.endpoints.access import ANONYMOUS, User
from kubeloop.endpoints.negotiation import Accepted
from kubeloop.endpoints.request_info import request_info
from kubeloop.serving.answer import Answer
from kubeloop.serving.request import Request
from kubeloop.timing import FakeClock
from tests.apiserver.write_requests import RESOURCE

ALICE, BOB = User("alice"), User("bob")
THING = "/apis/example.com/v1/namespaces/shop/things/one"


class _Services:
    """What ``RequestScope.write`` reads of the services of a server."""

    clock = FakeClock()


async def _no_body(limit: int) -> bytes:
    return b""


def _request(path: str, query: str = "", method: str = "GET") -> Request:
    return Request(method, path, query, {}, _no_body)


def _scope(path: str = THING, query: str = "", method: str = "PUT") -> RequestScope:
    request = _request(path, query, method)
    services: Any = _Services()
    scope = RequestScope(services, request, request_info(request), "id", 0.0)
    scope.route(RESOURCE, Accepted())
    return scope


@pytest.mark.parametrize(
    ("authenticated", "impersonated", "user"),
    [
        pytest.param(None, None, ANONYMOUS, id="a request that is not authenticated is anonymous"),
        pytest.param(ALICE, None, ALICE, id="an authenticated user acts as itself"),
        pytest.param(ALICE, BOB, BOB, id="an impersonated user acts in the place of the authenticated one"),
    ],
)
def test_the_user_of_a_request(authenticated: User | None, impersonated: User | None, user: User) -> None:
    scope = _scope()
    scope.authenticated, scope.impersonated = authenticated, impersonated
    assert scope.user == user
    assert scope.write().user == user


@pytest.mark.parametrize(
    ("path", "method", "long"),
    [
        pytest.param(THING, "GET", False, id="a get has a time limit"),
        pytest.param(f"{THING}/log", "GET", True, id="a log has none"),
        pytest.param("/apis/example.com/v1/watch/things", "GET", True, id="a watch has none"),
        pytest.param("/healthz", "GET", False, id="a path that is no resource has one"),
    ],
)
def test_time_limits(path: str, method: str, long: bool) -> None:
    assert _scope(path, method=method).long_running is long


def test_a_write_request_has_what_its_request_says() -> None:
    write = _scope(query="fieldManager=kubectl&fieldValidation=Strict").write(dry_run=True, manager="kubectl")
    assert (write.namespace, write.name, write.name_in_path, write.verb) == ("shop", "one", "one", "update")
    assert write.options == {"dryRun": ["All"], "fieldManager": "kubectl", "fieldValidation": "Strict"}
    assert write.dry_run
    assert write.manager == "kubectl"
    assert write.time == "2026-01-01T00:00:00Z"


def test_a_write_request_may_be_of_another_object_than_the_path() -> None:
    finalized = replace(RESOURCE, strategy_source=Strategy)
    write = _scope().write(name="two", namespace="", resource=finalized, of_collection=True)
    assert (write.namespace, write.name, write.of_collection) == ("", "two", True)
    assert write.resource is finalized


def test_the_namespace_of_a_cluster_scoped_resource_is_empty() -> None:
    scope = _scope()
    scope.route(replace(RESOURCE, namespaced=False), Accepted())
    assert scope.namespace == ""


def test_warnings_and_audit_annotations_of_writes_are_those_of_their_request() -> None:
    scope = _scope()
    first, second = scope.write(), scope.write()
    first.warnings.append("careful")
    second.audit_annotations["policy"] = "shop"
    assert scope.warnings == ["careful"]
    assert scope.annotations == {"policy": "shop"}
    assert first.findings is not second.findings


class _Page:
    """Documents with one path."""

    def __init__(self, path: str, text: str) -> None:
        self._path = path
        self._text = text

    def answer(self, request: Request) -> Answer | None:
        return Answer(200, body=self._text.encode()) if request.path == self._path else None


@pytest.fixture
def paths() -> NonResourcePaths:
    async def act(request: Request) -> Answer:
        return Answer(200, body=b"action")

    paths = NonResourcePaths({"/version": act, "/compact": act})
    paths.add(_Page("/version", "first"))
    paths.add(_Page("/version", "second"), _Page("/healthz", "ok"))
    return paths


@pytest.mark.parametrize(
    ("path", "body"),
    [
        pytest.param("/version", b"first", id="the documents that were added first answer"),
        pytest.param("/healthz", b"ok", id="documents that were added later answer their own paths"),
        pytest.param("/compact", b"action", id="actions answer the paths that no document has"),
    ],
)
async def test_a_path_that_is_no_resource(paths: NonResourcePaths, path: str, body: bytes) -> None:
    assert (await paths.answer(_request(path))).body == body


async def test_a_path_without_documents_or_action_has_no_route(paths: NonResourcePaths) -> None:
    with pytest.raises(NoRoute):
        await paths.answer(_request("/nowhere"))
