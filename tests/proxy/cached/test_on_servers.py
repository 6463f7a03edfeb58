"""Caching mode in front of the embedded server and of a real kube-apiserver: kubectl gets, watches and waits."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kubectl.runner import Kubectl, kubectl_binary, kubectl_environment
from tests.proxy.in_front import proxied
from tests.servers import ServerUnderTest

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def cached(server: ServerUnderTest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The kubeconfig of a proxy in caching mode."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("KUBELOOP_TEST_PROXY", "cache")
        with proxied(server.kubeconfig, tmp_path_factory.mktemp("proxy")) as kubeconfig:
            yield kubeconfig


@pytest.fixture
def through(cached: Path, namespace: str, tmp_path: Path) -> Kubectl:
    """kubectl through the proxy."""
    return Kubectl(cached, tmp_path / "home", namespace)


@pytest.fixture
def direct(server: ServerUnderTest, namespace: str, tmp_path: Path) -> Kubectl:
    """kubectl at the server itself."""
    return Kubectl(server.kubeconfig, tmp_path / "direct", namespace)


def start(kubectl: Kubectl, *args: str) -> subprocess.Popen[str]:
    environment = kubectl_environment(kubectl.home, kubectl.kubeconfig)
    command = [kubectl_binary(), "--namespace", kubectl.namespace, *args]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def tree_of(kubectl: Kubectl, path: str) -> Any:
    return json.loads(kubectl("get", "--raw", path))


def test_a_watch_from_a_page_of_the_server_begins_before_the_cache(through: Kubectl, direct: Kubectl) -> None:
    """The page is forwarded, and the cache begins with the watch, after the write."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{through.namespace}/leases"
    version = tree_of(through, f"{path}?limit=500")["metadata"]["resourceVersion"]
    direct("create", "-f", "-", stdin=json.dumps({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "late"}}))
    events = through("get", "--raw", f"{path}?watch=true&resourceVersion={version}&timeoutSeconds=1").splitlines()
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in map(json.loads, events)] == [("ADDED", "late")]


@pytest.mark.parametrize("query", ["", "?resourceVersion=0", "?labelSelector=none%3Dx", "?fieldSelector=metadata.name%3Da"])
def test_a_list_of_the_cache_is_that_of_the_server(through: Kubectl, direct: Kubectl, query: str) -> None:
    path = f"/api/v1/namespaces/{through.namespace}/configmaps"
    for name in ("a", "b"):
        direct("create", "configmap", name, "--from-literal=key=value")
        tree_of(through, path)  # a consistent list, by which later ones at version 0 are no older
    found, expected = tree_of(through, path + query), tree_of(direct, path + query)
    for tree in (found, expected):
        del tree["metadata"]["resourceVersion"]
    assert found == expected


def test_kubectl_watches_and_waits_through_the_cache(through: Kubectl, direct: Kubectl) -> None:
    direct("create", "configmap", "first", "--from-literal=key=old")
    watching = start(through, "get", "configmaps", "--output=name", "--watch", "--field-selector=metadata.name!=kube-root-ca.crt")
    waiting = start(through, "wait", "configmap/first", "--for=jsonpath={.data.key}=new", "--timeout=20s")
    try:
        assert watching.stdout is not None
        assert watching.stdout.readline() == "configmap/first\n"
        direct("create", "configmap", "second")
        assert watching.stdout.readline() == "configmap/second\n"
        direct("patch", "configmap", "first", '--patch={"data": {"key": "new"}}')
        assert watching.stdout.readline() == "configmap/first\n"
        assert waiting.communicate(timeout=20)[0] == "configmap/first condition met\n"
    finally:
        for process in (watching, waiting):
            process.kill()
            process.communicate()
