"""For each way in which the API server can fail, a client gets a Status that names the cause and no address."""

from __future__ import annotations

import pytest

from kubeloop.http1.errors import PeerSilentError
from kubeloop.meta.errors import ApiError, TransportError
from kubeloop.proxy.upstream import parsed, unreachable
from kubeloop.serving.answer import Answer
from kubeloop.transport.errors import IncompleteAnswerError
from tests.proxy.rules.rule_texts import rule
from tests.proxy.samples import PODS, ScriptedAnswer, ScriptedProxy, json_of

ADDRESS = "https://10.1.2.3:6443: failed"
HIDE_BACK = rule(match=[{"labelSelector": "tier=back"}])


def failure(error: TransportError, cause: BaseException | None) -> TransportError:
    error.__cause__ = cause
    return error


FAILURES = [
    pytest.param(
        failure(TransportError(ADDRESS), ConnectionRefusedError(111, "refused")), 503, "ServiceUnavailable", id="it refuses connections"
    ),
    pytest.param(failure(TransportError(ADDRESS), OSError("no route")), 503, "ServiceUnavailable", id="it cannot be reached"),
    pytest.param(failure(TransportError(ADDRESS), PeerSilentError(5.0)), 504, "Timeout", id="it is silent"),
    pytest.param(failure(TransportError(ADDRESS), TimeoutError()), 504, "Timeout", id="it is slow"),
    pytest.param(
        failure(TransportError(ADDRESS), TimeoutError(110, "timed out")), 503, "ServiceUnavailable", id="the system gives up connecting"
    ),
    pytest.param(failure(IncompleteAnswerError(ADDRESS), None), 502, "BadGateway", id="it ends in the middle"),
    pytest.param(failure(TransportError(ADDRESS), ValueError("rubbish")), 502, "BadGateway", id="it sends rubbish"),
]


@pytest.mark.parametrize(("error", "code", "reason"), FAILURES)
def test_a_failure_is_a_status_without_addresses(error: TransportError, code: int, reason: str) -> None:
    status = unreachable(error).status
    assert (status.code, status.reason) == (code, reason)
    assert status.details is not None
    assert status.details.retry_after_seconds == 1
    assert "10.1.2.3" not in status.message


@pytest.mark.parametrize("body", [b"", b"rubbish", b"[]", b"null", b"1", b"[" * 100_000])
def test_a_response_that_is_no_object_is_a_bad_gateway(body: bytes) -> None:
    with pytest.raises(ApiError) as raised:
        parsed(body)
    assert raised.value.status.code == 502


RUBBISH = [
    pytest.param([b"rubbish"], "application/json", id="rubbish"),
    pytest.param([b"<html>"], "text/html", id="a page"),
    pytest.param([b"\x00\x01"], "application/vnd.kubernetes.protobuf", id="protobuf, which was not asked for"),
    pytest.param([b'{"kind":"Pod","metadata":{"name":"we'], "application/json", id="a cut object"),
    pytest.param([b"[]"], "application/json", id="an array"),
]


@pytest.mark.parametrize(("chunks", "content_type"), RUBBISH)
@pytest.mark.parametrize("target", [f"{PODS}/web-0", PODS])
async def test_rubbish_instead_of_objects_is_a_bad_gateway(target: str, chunks: list[bytes], content_type: str) -> None:
    proxy = ScriptedProxy(lambda _: ScriptedAnswer(chunks=chunks, content_type=content_type), HIDE_BACK)
    reply = await proxy(target)
    assert isinstance(reply, Answer)
    assert reply.status == 502
    tree = await json_of(reply)
    assert (tree["kind"], tree["reason"], ("Retry-After", "1") in reply.headers) == ("Status", "BadGateway", True)
    assert all(answer.closed for answer in proxy.upstream.answers)


@pytest.mark.parametrize("accept", ["application/json", "application/vnd.kubernetes.protobuf", "application/yaml"])
@pytest.mark.parametrize("target", [f"{PODS}/web-0", PODS])
async def test_a_body_that_breaks_off_is_a_bad_gateway(target: str, accept: str) -> None:
    chunks: list[bytes | Exception] = [b'{"kind":"PodList","metadata":{},"items":[', failure(IncompleteAnswerError("gone"), None)]
    proxy = ScriptedProxy(lambda _: ScriptedAnswer(chunks=chunks), HIDE_BACK)
    reply = await proxy(target, Accept=accept)
    assert isinstance(reply, Answer)
    assert reply.status == 502


async def test_an_error_of_the_server_passes_unchanged() -> None:
    body = b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"m","reason":"TooManyRequests","code":429}\n'

    def script(_: object) -> ScriptedAnswer:
        return ScriptedAnswer(429, [body], **{"Retry-After": "7", "Content-Length": str(len(body))})

    for target in (PODS, f"{PODS}/web-0", f"{PODS}?watch=true"):
        reply = await ScriptedProxy(script, HIDE_BACK)(target)
        assert isinstance(reply, Answer)
        assert (reply.status, reply.body) == (429, body)
        assert "7" in dict(reply.headers).values()
