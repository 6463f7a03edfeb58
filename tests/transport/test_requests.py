"""What a transport sends, and what becomes of the answers. Against real TLS sockets."""

from __future__ import annotations

import asyncio
import contextvars
import gzip
import logging
from collections.abc import Callable

import pytest

from kubeloop.config import Credentials, ImpersonatedUser
from kubeloop.meta import (
    AlreadyExists,
    ApiError,
    Conflict,
    DeadlineError,
    Expired,
    Forbidden,
    Gone,
    InternalError,
    Invalid,
    MethodNotAllowed,
    NotAcceptable,
    NotFound,
    RequestEntityTooLarge,
    ServiceUnavailable,
    Timeout,
    TooManyRequests,
    TransportError,
    Unauthorized,
    UnsupportedMediaType,
)
from kubeloop.timing import FakeClock, TokenBucket
from kubeloop.transport import LogContext, Transport, log_context
from kubeloop.transport.answer import ServerWarning, warnings_in
from kubeloop.transport.round_tripper import describe
from tests.faults import DROP, SILENCE, FaultServer, Reply, status


async def test_a_request_names_its_user_agent_and_the_media_types() -> None:
    async with FaultServer(Reply(body={"a": 1})) as server, Transport(server.config()) as transport:
        query = {"watch": True, "limit": 5, "continue": None, "labelSelector": "a=b,c"}
        answer = await transport.request("POST", "/api/v1/x", query=query, body=b"{}", content_type="application/merge-patch+json")
    received = server.received[0]
    assert (received.method, received.target) == ("POST", "/api/v1/x?watch=true&limit=5&labelSelector=a%3Db%2Cc")
    assert received.headers["authorization"] == "Bearer secret-token"
    assert received.headers["content-type"] == "application/merge-patch+json"
    assert " kubeloop/v" in received.headers["user-agent"]
    assert received.body == b"{}"
    assert (answer.status, answer.body, answer.headers["content-TYPE"]) == (200, b'{"a": 1}', "application/json")


async def test_a_server_below_a_path_is_asked_there() -> None:
    async with FaultServer(Reply()) as server:
        config = server.config(server=f"https://127.0.0.1:{server.port}/k8s/clusters/c-1")
        async with Transport(config) as transport:
            await transport.request("GET", "/version")
    assert server.received[0].target == "/k8s/clusters/c-1/version"


async def test_one_connection_serves_many_requests() -> None:
    async with FaultServer(Reply(body=b"{}")) as server, Transport(server.config()) as transport:
        for _ in range(5):
            await transport.request("GET", "/version")
        assert server.connections == 1


async def test_a_callers_own_authorization_header_wins() -> None:
    async with FaultServer(Reply()) as server, Transport(server.config()) as transport:
        await transport.request("GET", "/version", headers={"authorization": "Bearer mine"})
    assert server.received[0].headers["authorization"] == "Bearer mine"


async def test_impersonation_is_sent_group_by_group() -> None:
    who = Credentials(token="t", impersonate=ImpersonatedUser(user="jane", groups=("devs", "ops")))
    async with FaultServer(Reply()) as server, Transport(server.config(credentials=who)) as transport:
        await transport.request("GET", "/version")
    assert server.received[0].headers["impersonate-user"] == "jane"
    assert server.received[0].headers["impersonate-group"] == "devs, ops"


async def test_a_compressed_answer_is_unpacked() -> None:
    reply = Reply(body=gzip.compress(b"plain"), headers={"Content-Encoding": "gzip"})
    async with FaultServer(reply) as server, Transport(server.config()) as transport:
        assert (await transport.request("GET", "/version")).body == b"plain"
    assert server.received[0].headers["accept-encoding"] == "gzip"


@pytest.mark.parametrize(
    ("coding", "body", "text"),
    [
        pytest.param("gzip", b"no gzip", "cannot be unpacked: .*incorrect header check", id="a body that is not compressed"),
        pytest.param("gzip", gzip.compress(b"x" * 100)[:-9], "cannot be unpacked: it ends in the middle", id="half of it"),
        pytest.param("br", b"x", "coded as br, which the client did not request", id="another coding"),
    ],
)
async def test_a_compressed_answer_that_cannot_be_unpacked_is_an_error(coding: str, body: bytes, text: str) -> None:
    async with FaultServer(Reply(body=body, headers={"Content-Encoding": coding})) as server, Transport(server.config()) as transport:
        with pytest.raises(TransportError, match=text):
            await transport.request("GET", "/x")


async def test_a_refusal_whose_brackets_do_not_end_is_a_refusal() -> None:
    deep = b'{"kind": "Status", "x": ' + b"[" * 100_000
    async with FaultServer(Reply(503, deep)) as server, Transport(server.config()) as transport:
        with pytest.raises(ServiceUnavailable):
            await transport.request("GET", "/x")


async def test_printing_an_answer_shows_no_body() -> None:
    async with FaultServer(Reply(body=b"hidden")) as server, Transport(server.config()) as transport:
        assert repr(await transport.request("GET", "/x")) == "Response(status=200, 6 bytes)"


async def test_a_limiter_holds_requests_back() -> None:
    clock = FakeClock()
    limiter = TokenBucket(1, 1, clock)
    async with FaultServer(Reply()) as server, Transport(server.config(), clock=clock, limiter=limiter) as transport:
        await transport.request("GET", "/version")
        second = asyncio.create_task(transport.request("GET", "/version"))
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(server.received) == 1
        await clock.advance(1)
        await second
    assert len(server.received) == 2


@pytest.mark.parametrize(
    ("method", "reply", "kind", "text"),
    [
        pytest.param(
            "GET", status(404, "NotFound", 'pods "x" not found'), NotFound, 'pods "x" not found', id="a Status decides by its reason"
        ),
        pytest.param("GET", status(409, "AlreadyExists", "there"), AlreadyExists, "there", id="also where the code has another meaning"),
        pytest.param(
            "GET", status(410, "Expired", "too old"), Expired, "too old", id="an expired version is distinguished from a vanished object"
        ),
        pytest.param("GET", status(422, "Odd", "odd"), Invalid, "odd", id="an unknown reason leaves the code to decide"),
        pytest.param("GET", Reply(400, b"bad"), ApiError, "bad", id="400 without a Status"),
        pytest.param("GET", Reply(401, b"Unauthorized"), Unauthorized, 'user "tester"', id="401 names the credentials"),
        pytest.param("GET", Reply(403, b"no way"), Forbidden, "no way", id="403 keeps the server's text"),
        pytest.param("GET", Reply(404, b"404 page not found"), NotFound, "404 page not found", id="404 of an unknown path"),
        pytest.param("GET", Reply(405), MethodNotAllowed, "", id="405"),
        pytest.param("GET", Reply(406), NotAcceptable, "", id="406"),
        pytest.param("POST", Reply(409), AlreadyExists, "", id="409 to a POST means that it exists"),
        pytest.param("PUT", Reply(409), Conflict, "", id="409 to anything else is a conflict"),
        pytest.param("GET", Reply(410), Gone, "", id="410"),
        pytest.param("POST", Reply(413, b"too large"), RequestEntityTooLarge, "too large", id="413 of a proxy or server"),
        pytest.param("POST", Reply(415), UnsupportedMediaType, "", id="415"),
        pytest.param("GET", Reply(429), TooManyRequests, "", id="429"),
        pytest.param("GET", Reply(500), InternalError, "", id="500"),
        pytest.param(
            "GET",
            Reply(502, b"<html><style>p{}</style><p>Bad <b>Gateway</b></p></html>"),
            InternalError,
            "Bad Gateway",
            id="a page of a proxy loses its tags",
        ),
        pytest.param("GET", Reply(503), ServiceUnavailable, "", id="503"),
        pytest.param("GET", Reply(504), Timeout, "", id="504"),
        pytest.param("GET", Reply(403, {"error": "denied by proxy"}), Forbidden, "denied by proxy", id="JSON that is no Status"),
    ],
)
async def test_an_answer_becomes(method: str, reply: Reply, kind: type[ApiError], text: str) -> None:
    async with FaultServer(reply) as server, Transport(server.config(), max_retries=0) as transport:
        with pytest.raises(kind) as raised:
            await transport.request(method, "/api/v1/namespaces/shop/pods/x")
        assert text in str(raised.value)
        assert 'pods "x" in namespace "shop"' in str(raised.value)
        assert raised.value.status.code == reply.status
    assert len(server.received) == 1


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
async def test_a_redirect_is_an_error_that_names_the_other_place_and_is_not_followed(code: int) -> None:
    async with FaultServer(Reply(code, b"moved", {"Location": "https://hidden@login.example/?token=hidden"})) as server:
        async with Transport(server.config()) as transport:
            for _ in range(2):
                with pytest.raises(TransportError, match=rf'HTTP status {code} redirects to "https://<masked>@login\.example/"') as raised:
                    await transport.request("GET", "/api/v1/pods")
                assert "hidden" not in str(raised.value)
        assert (len(server.received), server.connections) == (2, 1)


async def test_missing_credentials_are_distinguished_from_refused_ones() -> None:
    async with FaultServer(Reply(401)) as server, Transport(server.config(credentials=Credentials())) as transport:
        with pytest.raises(Unauthorized, match="there are no credentials"):
            await transport.request("GET", "/api/v1/pods")


async def test_the_causes_of_an_invalid_object_are_kept() -> None:
    details = {"causes": [{"reason": "FieldValueInvalid", "message": "bad", "field": "spec.replicas"}]}
    async with FaultServer(status(422, "Invalid", "bad", details=details)) as server, Transport(server.config()) as transport:
        with pytest.raises(Invalid) as raised:
            await transport.request("POST", "/api/v1/pods", body=b"{}")
    assert raised.value.causes[0].field == "spec.replicas"


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
async def test_429_and_5xx_with_retry_after_are_sent_again_with_the_whole_body(method: str) -> None:
    clock = FakeClock()
    script = [Reply(429, headers={"Retry-After": "2"}), Reply(503, headers={"Retry-After": "1"}), Reply(body=b"done")]
    async with FaultServer(*script) as server, Transport(server.config(), clock=clock) as transport:
        call = asyncio.create_task(transport.request(method, "/x", body=b"whole"))
        while not call.done():
            await asyncio.sleep(0.001)
            await clock.advance(1)
        assert (await call).body == b"done"
    assert [one.body for one in server.received] == [b"whole"] * 3
    assert clock.now() >= 3


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({}, id="no header"),
        pytest.param({"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, id="a date"),
        pytest.param({"Retry-After": "-1"}, id="a negative number"),
        pytest.param({"Retry-After": "9" * 5000}, id="a number without end"),
    ],
)
async def test_without_whole_seconds_in_retry_after_nothing_is_repeated(headers: dict[str, str]) -> None:
    async with FaultServer(Reply(503, headers=headers)) as server, Transport(server.config()) as transport:
        with pytest.raises(ServiceUnavailable):
            await transport.request("GET", "/x")
    assert len(server.received) == 1


async def test_after_ten_retries_the_error_says_how_often_it_was_tried() -> None:
    async with FaultServer(Reply(503, headers={"Retry-After": "0"})) as server, Transport(server.config()) as transport:
        with pytest.raises(ServiceUnavailable, match="tried 11 times") as raised:
            await transport.request("GET", "/x")
    assert len(server.received) == 11
    assert raised.value.retry_after is None


async def test_the_seconds_asked_for_are_in_the_error() -> None:
    async with FaultServer(Reply(429, headers={"Retry-After": "7"})) as server, Transport(server.config(), max_retries=0) as transport:
        with pytest.raises(TooManyRequests) as raised:
            await transport.request("GET", "/x")
    assert raised.value.retry_after == 7


async def test_a_read_is_sent_again_after_a_reset() -> None:
    cut, clock = Reply(body=b"half of it", end="cut"), FakeClock()
    async with FaultServer(DROP, cut, Reply(body=b"whole")) as server, Transport(server.config(), clock=clock) as transport:
        call = asyncio.create_task(transport.request("GET", "/x"))
        while not call.done():
            await asyncio.sleep(0.001)
            if len(server.received) == 2:
                await clock.advance(1)  # the first time at once, then a second later, as client-go
        assert (await call).body == b"whole"
    assert len(server.received) == 3


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_a_write_is_never_sent_again_after_a_reset(method: str) -> None:
    # On a connection that was used before: there the HTTP library would repeat PUT and DELETE by itself.
    async with FaultServer(Reply(), DROP, Reply()) as server, Transport(server.config()) as transport:
        await transport.request("GET", "/x")
        with pytest.raises(TransportError, match="the connection ended before the answer was complete"):
            await transport.request(method, "/x", body=b"{}")
        assert len(server.received) == 2


async def test_cancelling_ends_the_request_at_the_server() -> None:
    async with FaultServer(SILENCE) as server, Transport(server.config()) as transport:
        call = asyncio.create_task(transport.request("GET", "/x"))
        await server.waiting.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        async with asyncio.timeout(30):
            await server.gone.wait()


async def test_a_deadline_names_the_request_and_ends_it_at_the_server(later: Callable[[float], None]) -> None:
    async with FaultServer(SILENCE) as server, Transport(server.config()) as transport:
        call = asyncio.create_task(transport.request("GET", "/api/v1/pods", timeout=30))
        await server.waiting.wait()
        later(30)
        with pytest.raises(DeadlineError, match=r"no answer within 30 s \(list pods\)"):
            await call
        await server.gone.wait()


async def test_a_closed_transport_says_so() -> None:
    async with FaultServer(Reply()) as server:
        transport = Transport(server.config())
        await transport.request("GET", "/x")
        await transport.close()
        await transport.close()
        with pytest.raises(TransportError, match="this transport is closed"):
            await transport.request("GET", "/x")


async def test_a_call_that_pauses_before_its_next_try_ends_when_the_transport_is_closed() -> None:
    clock = FakeClock()
    async with FaultServer(Reply(429, headers={"Retry-After": "600"})) as server:
        transport = Transport(server.config(), clock=clock, timeout=1000, read_timeout=1000)
        asking = asyncio.ensure_future(transport.request("GET", "/x"))
        async with asyncio.timeout(10):
            while clock.next_due != 600:
                await asyncio.sleep(0.001)
            await transport.close()
            with pytest.raises(TransportError, match="this transport is closed"):
                await asking
        assert (len(server.received), clock.waiting) == (1, 0)


async def test_warnings_are_collected_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    reply = Reply(headers={"Warning": '299 - "v1 is \\"old\\", really", 299 - "second", 199 - "other"'})
    async with FaultServer(reply) as server, Transport(server.config()) as transport:
        for _ in range(2):
            answer = await transport.request("GET", "/x")
    assert answer.warnings == ('v1 is "old", really', "second")
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
        'the server warns: v1 is "old", really',
        "the server warns: second",
    ]


def test_warnings_of_other_codes_are_no_warnings_of_kubernetes() -> None:
    found = warnings_in(['110 - "stale"', '299 agent "text" "Wed, 21 Oct 2026 07:28:00 GMT"'], "list pods")
    assert found == (ServerWarning("text", "agent", "list pods"),)


async def test_log_records_carry_cluster_and_request_but_no_credentials(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(8, "kubeloop.transport")
    caplog.handler.addFilter(LogContext())
    async with FaultServer(Reply()) as server, Transport(server.config()) as transport:
        await transport.request("GET", "/api/v1/pods")
    record = next(one for one in caplog.records if one.name == "kubeloop.transport")
    assert getattr(record, "kubeloop", None) == {"cluster": "faulty", "method": "GET", "path": "/api/v1/pods"}
    assert "Bearer <masked>" in caplog.text
    assert "secret-token" not in caplog.text


@pytest.mark.parametrize(
    ("method", "path", "query", "words"),
    [
        pytest.param("GET", "/api/v1/namespaces/shop/pods/web-0", None, 'get pods "web-0" in namespace "shop"', id="one object"),
        pytest.param("GET", "/apis/apps/v1/deployments", None, "list deployments.apps", id="all objects"),
        pytest.param("GET", "/apis/apps/v1/deployments", {"watch": True}, "watch deployments.apps", id="a watch"),
        pytest.param("PUT", "/api/v1/namespaces/n/pods/p/status", None, 'update pods/status "p" in namespace "n"', id="a subresource"),
        pytest.param("PUT", "/api/v1/namespaces/n/finalize", None, 'update namespaces/finalize "n"', id="a subresource of a namespace"),
        pytest.param("DELETE", "/api/v1/namespaces/n/pods", None, 'delete collection of pods in namespace "n"', id="a collection"),
        pytest.param("GET", "/version", None, "GET /version", id="a path that names no resource"),
    ],
)
def test_a_request_in_words(method: str, path: str, query: dict[str, object] | None, words: str) -> None:
    assert describe(method, path, query) == words


def test_a_context_that_is_left_elsewhere_is_left_quietly() -> None:
    block = log_context(cluster="c")
    contextvars.copy_context().run(block.__enter__)
    block.__exit__(None, None, None)  # as the garbage collector does for an unfinished coroutine


@pytest.mark.parametrize(
    ("limits", "error", "text"),
    [
        pytest.param({"timeout": 60}, DeadlineError, "no answer within 60 s", id="the whole request"),
        pytest.param({"timeout": 600, "read_timeout": 45}, TransportError, "no answer within 45 s", id="the next bytes of the answer"),
    ],
)
async def test_the_limits_of_a_request_are_measured_by_the_clock_of_the_transport(
    limits: dict[str, float], error: type[Exception], text: str
) -> None:
    clock = FakeClock()
    async with (
        FaultServer(Reply(status=0, end="hang"), tls=False) as server,
        Transport(server.config(), clock=clock, **limits) as transport,  # type: ignore[arg-type]
    ):
        asking = asyncio.ensure_future(transport.request("POST", "/x", body=b"{}"))
        async with asyncio.timeout(10):
            while not server.received:
                await asyncio.sleep(0.001)
            due = min(limits.values())
            await clock.advance(due - 1)
            assert not asking.done()
            await clock.advance(1)
            with pytest.raises(error, match=text):
                await asking
