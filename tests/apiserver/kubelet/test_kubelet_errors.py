"""The errors for logs and streams that cannot be served, word for word, on both servers."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.serving.answer import Answer
from tests.apiserver.kubelet.conftest import Cluster
from tests.apiserver.kubelet.scripted import ScriptedKubelet

pytestmark = pytest.mark.server

_UPGRADE = {"Connection": "Upgrade", "Upgrade": "SPDY/3.1"}
_NO_HOST = "pod waiting does not have a host assigned"
_CHOOSE = "a container name must be specified for pod two, choose one of: [init one two]"
_NOT_ALLOWED = "the server does not allow this method on the requested resource"
_NO_RESOURCE = "the server could not find the requested resource"
_TYPES = "application/json, application/yaml, application/vnd.kubernetes.protobuf"


async def _pods(cluster: Cluster, node: str) -> str:
    await cluster.pod("web", node)
    await cluster.pod("waiting", schedulingGates=[{"name": "example.com/wait"}])
    containers = [{"name": name, "image": "none"} for name in ("one", "two")]
    await cluster.pod("two", node, initContainers=[{"name": "init", "image": "none"}], containers=containers)
    await cluster.pod("lost", "kubelet-that-is-none")
    return f"/api/v1/namespaces/{cluster.namespace}/pods"


@pytest.fixture
async def pods(cluster: Cluster, kubelet: ScriptedKubelet) -> str:
    return await _pods(cluster, await cluster.node(kubelet))


@pytest.mark.parametrize(
    ("method", "path", "status", "reason", "message"),
    [
        pytest.param("GET", "none/log", 404, "NotFound", 'pods "none" not found', id="no such pod"),
        pytest.param("GET", "two/log", 400, "BadRequest", _CHOOSE, id="several containers want a name"),
        pytest.param(
            "GET", "two/log?container=x", 400, "BadRequest", "container x is not valid for pod two", id="a container that there is not"
        ),
        pytest.param("GET", "lost/log", 404, "NotFound", 'pods "kubelet-that-is-none" not found', id="a node that there is not"),
        pytest.param("GET", "web/log?tailLines=x", 400, "BadRequest", 'strconv.ParseInt: parsing "x": invalid syntax', id="no number"),
        pytest.param("GET", "web/log?tailLines=", 400, "BadRequest", 'strconv.ParseInt: parsing "": invalid syntax', id="an empty number"),
        pytest.param(
            "GET",
            "web/log?sinceTime=2020-13-01T00:00:00Z",
            400,
            "BadRequest",
            'parsing time "2020-13-01T00:00:00Z": month out of range',
            id="no time",
        ),
        pytest.param(
            "GET",
            "web/log?tailLines=-1&limitBytes=0&sinceSeconds=0",
            422,
            "Invalid",
            'PodLogOptions "web" is invalid: [tailLines: Invalid value: -1: must be greater than or equal to 0, '
            "limitBytes: Invalid value: 0: must be greater than 0, sinceSeconds: Invalid value: 0: must be greater than 0]",
            id="numbers that make no sense",
        ),
        pytest.param(
            "GET",
            "web/log?sinceSeconds=1&sinceTime=2020-01-01T00:00:00Z",
            422,
            "Invalid",
            'PodLogOptions "web" is invalid: []: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified',
            id="two beginnings",
        ),
        pytest.param(
            "GET",
            "web/log?stream=Stdout",
            422,
            "Invalid",
            'PodLogOptions "web" is invalid: stream: Forbidden: may not be specified',
            id="one stream",
        ),
        pytest.param("POST", "web/log", 405, "MethodNotAllowed", _NOT_ALLOWED, id="a log is only read"),
        pytest.param("GET", "web/log/x", 404, "NotFound", _NO_RESOURCE, id="nothing below a log"),
        pytest.param("GET", "waiting/exec", 400, "BadRequest", _NO_HOST, id="exec without a node"),
        pytest.param("GET", "waiting/attach", 400, "BadRequest", _NO_HOST, id="attach without a node"),
        pytest.param("GET", "waiting/portforward", 400, "BadRequest", _NO_HOST, id="portforward without a node"),
        pytest.param("POST", "none/exec", 404, "NotFound", 'pods "none" not found', id="exec in no pod"),
        pytest.param("POST", "two/exec", 400, "BadRequest", _CHOOSE, id="exec in one of several containers"),
        pytest.param("POST", "web/exec?dryRun=All", 400, "BadRequest", "dryRun is not supported", id="no dry run of a command"),
        pytest.param("POST", "web/exec", 400, "BadRequest", "Upgrade request required", id="exec without an upgrade"),
        pytest.param("GET", "web/attach", 400, "BadRequest", "Upgrade request required", id="attach without an upgrade"),
        pytest.param("POST", "two/portforward", 400, "BadRequest", "Upgrade request required", id="a port belongs to no container"),
        pytest.param("PUT", "web/exec", 405, "MethodNotAllowed", _NOT_ALLOWED, id="exec is not put"),
        pytest.param("OPTIONS", "web/exec", 405, "MethodNotAllowed", _NOT_ALLOWED, id="exec has no options"),
        pytest.param("GET", "web/exec/x", 404, "NotFound", _NO_RESOURCE, id="nothing below exec"),
        pytest.param(
            "POST",
            "web/portforward?ports=x",
            400,
            "BadRequest",
            'cannot convert to []int32: strconv.ParseUint: parsing "x": invalid syntax',
            id="a port that is no number",
        ),
        pytest.param(
            "POST",
            "web/portforward?ports=2147483648",
            400,
            "BadRequest",
            'cannot convert to []int32: strconv.ParseUint: parsing "2147483648": value out of range',
            id="a port beyond all numbers",
        ),
    ],
)
async def test_a_request_is_refused(cluster: Cluster, pods: str, method: str, path: str, status: int, reason: str, message: str) -> None:
    met, answer = await cluster.request(method, f"{pods}/{path}")
    assert (met, answer["reason"], answer["message"]) == (status, reason, message)


async def test_the_log_of_a_pod_without_a_node_is_empty_with_no_content(cluster: Cluster, pods: str) -> None:
    async with cluster.session.get(f"{pods}/waiting/log") as answer:
        assert (answer.status, await answer.read(), answer.headers.get("Content-Type")) == (204, b"", None)


@pytest.mark.parametrize(
    ("accept", "message"),
    [
        pytest.param("text/plain", f"only the following media types are accepted: {_TYPES}", id="text, though it is text"),
        pytest.param(
            "application/json;as=Table;v=v1;g=meta.k8s.io", f"only the following media types are accepted: {_TYPES}", id="a table"
        ),
        pytest.param("text/html", f"406: Not Acceptable\n\nAvailable representations: text/plain, {_TYPES}", id="HTML"),
    ],
)
async def test_a_log_is_not_had_as(cluster: Cluster, pods: str, accept: str, message: str) -> None:
    met, answer = await cluster.request("GET", f"{pods}/web/log", headers={"Accept": accept})
    assert (met, answer["message"]) == (406, message)


async def test_a_node_without_a_usable_address_is_named_with_those_it_has(cluster: Cluster, kubelet: ScriptedKubelet) -> None:
    name = await cluster.node(kubelet)
    addresses = [{"type": "Odd", "address": "127.0.0.1"}, {"type": "Other", "address": "x.y"}]
    await cluster._patch(f"/api/v1/nodes/{name}/status", {"status": {"addresses": None}})
    await cluster._patch(f"/api/v1/nodes/{name}/status", {"status": {"addresses": addresses}})
    met, answer = await cluster.request("GET", f"{await cluster.pod('web', name)}/log")
    assert (met, answer["message"]) == (500, "no preferred addresses found; known addresses: [{Odd 127.0.0.1} {Other x.y}]")
    assert "reason" not in answer


async def test_a_kubelet_that_is_not_there_is_named(cluster: Cluster) -> None:
    pod = await cluster.pod("web", await cluster.node(1))
    refused = "dial tcp 127.0.0.1:1: connect: connection refused"
    met, answer = await cluster.request("GET", f"{pod}/log")
    url = f"https://127.0.0.1:1/containerLogs/{cluster.namespace}/web/main"
    assert (met, answer["message"]) == (500, f'Get "{url}": {refused}')
    met, answer = await cluster.request("POST", f"{pod}/exec?command=x", headers=_UPGRADE)
    assert (met, answer["message"]) == (500, f"error dialing backend: {refused}")


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param(400, {"reason": "BadRequest", "message": "why"}, id="a bad request is passed on in its words"),
        pytest.param(403, {"reason": "Forbidden", "message": "why ( pods/log web)"}, id="a forbidden log says why"),
        pytest.param(404, {"reason": "NotFound", "message": f"{_NO_RESOURCE} ( pods/log web)"}, id="a log that is not there"),
        pytest.param(500, {"reason": "InternalError", "message": "Internal error occurred: why"}, id="a kubelet's own fault"),
        pytest.param(
            502,
            {
                "reason": "InternalError",
                "message": 'an error on the server ("why") has prevented the request from succeeding ( pods/log web)',
            },
            id="a fault behind the kubelet",
        ),
        pytest.param(
            503,
            {"reason": "ServiceUnavailable", "message": "the server is currently unable to handle the request ( pods/log web)"},
            id="a kubelet that is busy",
        ),
        pytest.param(
            418,
            {"message": "the server responded with the status code 418 but did not return more information ( pods/log web)"},
            id="an unexpected response",
        ),
    ],
)
async def test_a_kubelets_refusal_of_a_log_becomes_a_status(
    cluster: Cluster, kubelet: ScriptedKubelet, status: int, expected: dict[str, Any]
) -> None:
    pod = await cluster.pod("web", await cluster.node(kubelet))
    kubelet.refusal = Answer(status, body=b"why", content_type="text/plain")
    met, answer = await cluster.request("GET", f"{pod}/log")
    assert met == status
    assert {name: answer.get(name) for name in ("reason", "message") if answer.get(name)} == expected


async def test_a_kubelets_refusal_of_streams_is_passed_on_as_it_is(cluster: Cluster, kubelet: ScriptedKubelet) -> None:
    pod = await cluster.pod("web", await cluster.node(kubelet))
    kubelet.refusal = Answer(418, body=b"why", content_type="text/odd")
    async with cluster.session.post(f"{pod}/exec?command=x", headers=_UPGRADE) as answer:
        assert (answer.status, await answer.text(), answer.headers["Content-Type"]) == (418, "why", "text/odd")


async def test_an_answer_that_neither_upgrades_nor_refuses_is_a_fault(cluster: Cluster, kubelet: ScriptedKubelet) -> None:
    pod = await cluster.pod("web", await cluster.node(kubelet))
    kubelet.refusal = Answer(200, body=b"fine")
    met, answer = await cluster.request("POST", f"{pod}/exec?command=x", headers=_UPGRADE)
    assert (met, answer["message"]) == (500, "invalid upgrade response: status code 200")


async def test_a_kubelet_gets_the_query_and_the_protocols_of_the_request(cluster: Cluster, kubelet: ScriptedKubelet) -> None:
    pod = await cluster.pod("web", await cluster.node(kubelet))
    kubelet.refusal = Answer(418, body=b"why")
    query = "command=a&command=b%20c&stdin=1&stdout=true&stderr=0&tty=x&odd=1"
    headers = {**_UPGRADE, "X-Own": "1", "X-Stream-Protocol-Version": "v4.channel.k8s.io"}
    async with cluster.session.post(f"{pod}/exec?{query}", headers=headers) as answer:
        assert answer.status == 418
    seen = kubelet.last
    assert seen.path == f"/exec/{cluster.namespace}/web/main"
    assert seen.query == {"command": ["a", "b c"], "input": ["1"], "output": ["1"], "tty": ["1"]}
    assert {name: seen.headers[name] for name in ("connection", "upgrade", "x-own", "x-stream-protocol-version", "content-length")} == {
        "connection": "Upgrade",
        "upgrade": "SPDY/3.1",
        "x-own": "1",
        "x-stream-protocol-version": "v4.channel.k8s.io",
        "content-length": "0",
    }
    assert seen.headers["x-forwarded-for"] == "127.0.0.1"
    assert "authorization" not in seen.headers
    async with cluster.session.post(f"{pod}/portforward?ports=1&ports=2,3", headers=_UPGRADE) as answer:
        assert answer.status == 418
    assert (kubelet.last.path, kubelet.last.query) == (f"/portForward/{cluster.namespace}/web", {"port": ["1,2,3"]})
    kubelet.refusal = None
    async with cluster.session.get(f"{pod}/log?follow=0&sinceTime=2020-01-01T00:00:00.5%2B02:00&pretty=1") as answer:
        assert (await answer.text(), answer.headers["Content-Type"]) == ("one\ntwo\n", "text/plain")
    assert kubelet.last.query == {"sinceTime": ["2019-12-31T22:00:00Z"]}
