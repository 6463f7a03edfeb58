"""A completed request leaves no cycles: only Python's garbage collector would find them, and it seldom scans old objects.

A watch is old when it ends; a server that relied on the collector would grow with each of them.
"""

from __future__ import annotations

import collections
import gc
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kubeloop.apiserver.audit.log import AuditLog
from kubeloop.apiserver.audit.policy import AuditPolicy
from kubeloop.apiserver.filters import Auditing, OperationOptions
from kubeloop.timing import SystemClock
from tests.apiserver.conftest import CONFIGMAPS, MERGE, TABLE, Api, running_api
from tests.apiserver.policies.test_policy_changes import bind

APPLY = "application/apply-patch+yaml"
APPLIED = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "there"}}
SERVER = ("kubeloop.apiserver", "kubeloop.serving", "kubeloop.cel")


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Api]:
    """A server that audits all, with a policy that asks what the user may."""
    policy = tmp_path / "policy.yaml"
    policy.write_text("{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: RequestResponse}]}")
    auditing = Auditing(AuditPolicy.read(policy), AuditLog(tmp_path / "audit.log", SystemClock()))
    async with running_api(operation=OperationOptions(auditing=auditing)) as api:
        asks = "authorizer.group('').resource('configmaps').namespace('default').check('create').allowed()"
        await bind(
            api, "p", validations=[{"expression": f"{asks} && variables.named"}], variables=[{"name": "named", "expression": "true"}]
        )
        await api.create("there")
        yield api


@contextmanager
def collected() -> Iterator[collections.Counter[str]]:
    """Filled at the end: what of the server the collector has found since the beginning, by type."""
    found: collections.Counter[str] = collections.Counter()
    gc.collect()
    gc.disable()
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        gc.set_debug(0)
        found.update(type(one).__qualname__ for one in gc.garbage if type(one).__module__.startswith(SERVER))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


ASKED: dict[str, tuple[str, str, Any, dict[str, str], int]] = {
    "a creation": ("POST", CONFIGMAPS, {"metadata": {"name": "new"}}, {}, 201),
    "a creation that is refused": ("POST", CONFIGMAPS, {"metadata": {"name": "No"}}, {}, 422),
    "a creation of an existing object": ("POST", CONFIGMAPS, {"metadata": {"name": "there"}}, {}, 409),
    "an update from an old version": ("PUT", f"{CONFIGMAPS}/there", {"metadata": {"name": "there", "resourceVersion": "1"}}, {}, 409),
    "a deletion of another version": ("DELETE", f"{CONFIGMAPS}/there", {"preconditions": {"resourceVersion": "1"}}, {}, 409),
    "an apply": ("PATCH", f"{CONFIGMAPS}/there?fieldManager=x", {**APPLIED, "data": {"c": "d"}}, {"content": APPLY}, 200),
    "a kind that is not there": ("GET", "/apis/none/v1/nones", None, {}, 404),
    "a body that is none": ("POST", CONFIGMAPS, "{", {}, 400),
    "a dry run": ("POST", f"{CONFIGMAPS}?dryRun=All", {"metadata": {"name": "dry"}}, {}, 201),
    "a table": ("GET", CONFIGMAPS, None, {"accept": TABLE}, 200),
    "the documents": ("GET", "/openapi/v3/api/v1", None, {}, 200),
    "a change": ("PATCH", f"{CONFIGMAPS}/there", {"data": {"a": "b"}}, {"content": MERGE}, 200),
    "a read": ("GET", f"{CONFIGMAPS}/there", None, {}, 200),
    "a read of a missing object": ("GET", f"{CONFIGMAPS}/none", None, {}, 404),
    "a list": ("GET", f"{CONFIGMAPS}?limit=1", None, {}, 200),
    "a deletion": ("DELETE", f"{CONFIGMAPS}/there", None, {}, 200),
    "a watch that ends": ("GET", f"{CONFIGMAPS}?watch=1&timeoutSeconds=1&allowWatchBookmarks=true", None, {}, 200),
    "a user without the right": ("GET", CONFIGMAPS, None, {"token": "alice-token"}, 403),
    "a user who may not impersonate": ("GET", CONFIGMAPS, None, {"token": "alice-token", "Impersonate_User": "bob"}, 403),
    "an unknown token": ("GET", CONFIGMAPS, None, {"token": "nobody"}, 401),
}


@pytest.mark.parametrize("name", ASKED)
async def test_a_request_leaves_nothing_to_the_collector(guarded: Api, name: str) -> None:
    method, path, body, options, status = ASKED[name]
    await guarded("GET", CONFIGMAPS)
    with collected() as found:
        assert (await guarded(method, path, body, **options)).status == status
    assert found == {}


async def test_a_watch_that_its_client_leaves_leaves_nothing_to_the_collector(guarded: Api) -> None:
    with collected() as found:
        async with guarded.watch(f"{CONFIGMAPS}?watch=1") as watch:
            await anext(watch)
        await guarded("GET", CONFIGMAPS)
    assert found == {}
