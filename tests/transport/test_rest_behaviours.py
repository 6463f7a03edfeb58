"""What a REST client of Kubernetes does, behaviour by behaviour (K140 to K157), over real TLS sockets; the clock is a fake."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kubeloop.api.core.v1 import ConfigMap, Pod
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.config import Credentials
from kubeloop.meta import (
    ApiError,
    Conflict,
    DeadlineError,
    DecodeError,
    Forbidden,
    ServiceUnavailable,
    TooManyRequests,
    TransportError,
    Unauthorized,
)
from kubeloop.timing import FakeClock, TokenBucket
from kubeloop.transport import Hook, Outcome, SentRequest, Transport
from kubeloop.transport.limits import FailureBackoff
from kubeloop.transport.user_agent import default_user_agent
from tests.faults import DROP, SILENCE, FaultServer, Reply, frames, status

METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
BUSY = Reply(429, headers={"Retry-After": "2"})


#: Seconds: the shortest limit of a request by the clock (that of its connection).
_LIMITS = 30.0


async def after(clock: FakeClock, call: Awaitable[object], step: float = 1.0) -> object:
    """The outcome of a call whose pauses the clock ends."""
    task = asyncio.ensure_future(call)
    while not task.done():
        await asyncio.sleep(0.001)
        # Limits of requests are 30 s and more; a pause before the next try is shorter.
        if (clock.next_due or _LIMITS) < _LIMITS and not task.done():
            await clock.advance(step)
    return await task


class Sequence(Hook):
    """What happened, in order."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.started = clock.now()
        self.seen: list[str] = []

    def sending(self, request: SentRequest) -> None:
        self.seen.append(f"{self.clock.now() - self.started:g} try {request.attempt}")

    def answered(self, request: SentRequest, outcome: Outcome) -> None:
        self.seen.append(f"{self.clock.now() - self.started:g} {outcome.status or type(outcome.error).__name__}")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("code", [429, 500, 502, 503, 504])
async def test_429_and_any_5xx_with_whole_seconds_in_retry_after_is_tried_again_for_every_verb_K140(method: str, code: int) -> None:
    clock = FakeClock()
    started = clock.now()
    script = [Reply(code, headers={"Retry-After": "2"}), Reply(body=b"done")]
    async with FaultServer(*script) as server, Transport(server.config(), clock=clock) as transport:
        answer = await after(clock, transport.request(method, "/x", body=b"{}"))
    assert getattr(answer, "body", None) == b"done"
    assert len(server.received) == 2
    assert clock.now() - started >= 2


async def test_a_stream_and_a_watch_are_put_off_and_opened_again_in_the_same_way_K140() -> None:
    clock = FakeClock()

    async def read(transport: Transport, watch: bool) -> bytes:
        async with transport.stream("GET", "/api/v1/pods", query={"watch": watch}) as stream:
            return b"".join([chunk async for chunk in stream.chunks()])

    for watch in (False, True):
        async with FaultServer(BUSY, Reply(chunks=[b"line"])) as server, Transport(server.config(), clock=clock) as transport:
            assert await after(clock, read(transport, watch)) == b"line"


@pytest.mark.parametrize("code", [429, 500, 503])
@pytest.mark.parametrize("headers", [{}, {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, {"Retry-After": "soon"}])
async def test_without_whole_seconds_in_retry_after_nothing_is_tried_again_K140(code: int, headers: dict[str, str]) -> None:
    async with FaultServer(Reply(code, headers=headers)) as server, Transport(server.config(), clock=FakeClock()) as transport:
        with pytest.raises(ApiError):
            await transport.request("GET", "/x")
    assert len(server.received) == 1


@pytest.mark.parametrize("code", [400, 403, 404, 409, 410, 422])
async def test_other_refusals_are_not_tried_again_whatever_they_say_of_later_K140(code: int) -> None:
    async with FaultServer(Reply(code, headers={"Retry-After": "1"})) as server, Transport(server.config(), clock=FakeClock()) as transport:
        with pytest.raises(ApiError) as raised:
            await transport.request("GET", "/x")
    assert (raised.value.status.code, len(server.received)) == (code, 1)


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(DROP, id="the connection ends without an answer"),
        pytest.param(Reply(status=0, end="reset"), id="the connection is reset"),
        pytest.param(Reply(body=b"whole answer", end="cut"), id="the body ends in the middle"),
        pytest.param(Reply(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx", end="tear"), id="a TLS record ends in the middle"),
    ],
)
@pytest.mark.parametrize("method", METHODS)
async def test_a_connection_that_breaks_is_a_reason_to_read_again_and_never_to_write_again_K141(method: str, broken: Reply) -> None:
    clock = FakeClock()
    async with FaultServer(broken, Reply(body=b"whole")) as server, Transport(server.config(), clock=clock) as transport:
        if method == "GET":
            answer = await after(clock, transport.request(method, "/x"))
            assert getattr(answer, "body", None) == b"whole"
        else:
            with pytest.raises(TransportError, match="the connection ended before the answer was complete"):
                await transport.request(method, "/x", body=b"{}")
    assert len(server.received) == (2 if method == "GET" else 1)


async def test_a_stream_whose_connection_breaks_is_not_opened_again_K141() -> None:
    async with FaultServer(DROP, Reply(chunks=[b"x"])) as server, Transport(server.config(), clock=FakeClock()) as transport:
        with pytest.raises(TransportError, match="the connection ended"):
            async with transport.stream("GET", "/x"):
                pytest.fail("the block must not run")
    assert len(server.received) == 1


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_each_try_sends_the_whole_body_K142(method: str) -> None:
    clock, body = FakeClock(), b"x" * 600_000
    async with FaultServer(BUSY, BUSY, Reply()) as server, Transport(server.config(), clock=clock) as transport:
        await after(clock, transport.request(method, "/x", body=body))
    assert [one.body == body for one in server.received] == [True] * 3


async def test_there_are_ten_further_tries_unless_another_number_is_given_K143() -> None:
    now = Reply(503, headers={"Retry-After": "0"})
    for retries, tries in ((None, 11), (0, 1), (3, 4)):
        async with FaultServer(now) as server:
            changes: dict[str, Any] = {} if retries is None else {"max_retries": retries}
            async with Transport(server.config(), clock=FakeClock(), **changes) as transport:
                with pytest.raises(ServiceUnavailable):
                    await transport.request("GET", "/x")
            assert len(server.received) == tries


async def test_tries_end_with_the_task_that_waits_for_them_K143() -> None:
    clock = FakeClock()
    async with FaultServer(BUSY) as server, Transport(server.config(), clock=clock) as transport:
        call = asyncio.create_task(transport.request("GET", "/x"))
        while not server.received or (clock.next_due or _LIMITS) >= _LIMITS:
            await asyncio.sleep(0.001)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await clock.advance(60)
        assert len(server.received) == 1


async def test_no_try_is_waited_for_that_would_come_after_the_deadline_and_the_servers_word_is_the_error_K143() -> None:
    async with (
        FaultServer(Reply(429, headers={"Retry-After": "3600"})) as server,
        Transport(server.config(), clock=FakeClock()) as transport,
    ):
        with pytest.raises(TooManyRequests) as raised:
            await transport.request("GET", "/x", timeout=60)
    assert raised.value.retry_after == 3600


async def test_a_call_is_limited_then_paused_then_sent_and_a_further_try_paused_then_limited_then_sent_K144() -> None:
    clock = FakeClock()
    sequence = Sequence(clock)
    limiter = TokenBucket(0.1, 1, clock)
    backoff = FailureBackoff(3, 60, clock)
    backoff.outcome(503)
    manners: dict[str, Any] = {"clock": clock, "limiter": limiter, "backoff": backoff, "hooks": [sequence]}
    async with FaultServer(BUSY, Reply()) as server, Transport(server.config(), **manners) as transport:
        limiter.reserve()  # the next token is there in 10 s
        await after(clock, transport.request("GET", "/x"))
        # 10 s for a token and 3 s of pause; the failure doubled the pause, which is longer than the server's 2 s; then again a token.
        assert sequence.seen == ["13 try 0", "13 429", "20 try 1", "20 200"]
        figures = transport.figures
    assert dict(figures.requests) == {("429", "GET"): 1, ("200", "GET"): 1}
    assert dict(figures.retries) == {("200", "GET"): 1}
    assert sum(figures.limiter["GET"].counts) == 2
    assert backoff.pause() == 0


async def test_a_watch_passes_the_limiter_on_its_first_try_and_not_on_a_further_one_K144() -> None:
    clock = FakeClock()
    sequence, limiter = Sequence(clock), TokenBucket(0.1, 1, clock)
    limiter.reserve()

    async def watch(transport: Transport) -> None:
        async with transport.stream("GET", "/api/v1/pods", query={"watch": True}):
            pass

    manners: dict[str, Any] = {"clock": clock, "limiter": limiter, "hooks": [sequence]}
    async with FaultServer(BUSY, Reply(chunks=[b"x"])) as server, Transport(server.config(), **manners) as transport:
        await after(clock, watch(transport))
    assert sequence.seen == ["0 try 0", "0 429", "10 try 1", "10 200"]


async def test_the_last_error_names_the_one_before_K144(later: Callable[[float], None]) -> None:
    clock = FakeClock()
    async with FaultServer(DROP, Reply(403, b"no")) as server, Transport(server.config(), clock=clock) as transport:
        with pytest.raises(Forbidden, match=r"tried 2 times; error from a previous attempt: .*the connection ended"):
            await after(clock, transport.request("GET", "/x"))
    nonsense = Reply(raw=b"nonsense\r\n\r\n", end="leave")
    async with FaultServer(BUSY, nonsense) as server, Transport(server.config(), clock=clock) as transport:
        with pytest.raises(TransportError, match=r"is not HTTP .* - error from a previous attempt: HTTP status 429"):
            await after(clock, transport.request("GET", "/x"))
    async with FaultServer(DROP, SILENCE) as server, Transport(server.config()) as transport:
        call = asyncio.create_task(transport.request("GET", "/x", timeout=60))
        await server.waiting.wait()
        later(60)
        with pytest.raises(DeadlineError, match=r"no answer within 60 s .* - error from a previous attempt: .*the connection ended"):
            await call


async def test_what_a_refused_try_brought_is_read_so_that_its_connection_serves_the_next_K145() -> None:
    clock = FakeClock()
    refusals = [status(503, "ServiceUnavailable", "no " * 5000), status(429, "TooManyRequests", "no")]
    script = [Reply(one.status, one.body, {"Retry-After": "1"}) for one in refusals]
    async with FaultServer(*script, Reply(body=b"done")) as server, Transport(server.config(), clock=clock) as transport:
        await after(clock, transport.request("GET", "/x"))
        assert (len(server.received), server.connections) == (3, 1)


async def test_a_limit_of_5_per_second_after_10_at_once_holds_the_11th_back_and_no_limit_none_K146() -> None:
    clock = FakeClock()
    started = clock.now()
    async with FaultServer(Reply()) as server:
        async with Transport(server.config(), clock=clock, limiter=TokenBucket(5, 10, clock)) as transport:
            await asyncio.gather(*(transport.request("GET", "/x") for _ in range(10)))
            assert clock.now() == started
            await after(clock, transport.request("GET", "/x"), step=0.1)
            assert clock.now() - started == pytest.approx(0.2)
            async with transport.stream("GET", "/x", query={"watch": True}):
                assert clock.now() - started == pytest.approx(0.2)
        async with Transport(server.config(), clock=clock) as transport:
            await asyncio.gather(*(transport.request("GET", "/x") for _ in range(50)))
            assert clock.now() - started == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("method", "code", "reason"),
    [
        ("GET", 400, "BadRequest"),
        ("GET", 401, "Unauthorized"),
        ("GET", 403, "Forbidden"),
        ("GET", 404, "NotFound"),
        ("GET", 405, "MethodNotAllowed"),
        ("GET", 406, "NotAcceptable"),
        ("POST", 409, "AlreadyExists"),
        ("PUT", 409, "Conflict"),
        ("GET", 415, "UnsupportedMediaType"),
        ("GET", 422, "Invalid"),
        ("GET", 429, "TooManyRequests"),
        ("GET", 503, "ServiceUnavailable"),
        ("GET", 504, "Timeout"),
        ("GET", 500, "InternalError"),
        ("GET", 599, "InternalError"),
        ("GET", 410, "Unknown"),
        ("GET", 418, "Unknown"),
    ],
)
async def test_a_refusal_that_is_no_status_is_known_by_its_code_K147(method: str, code: int, reason: str) -> None:
    async with FaultServer(Reply(code, b"the server's own words")) as server, Transport(server.config()) as transport:
        with pytest.raises(ApiError, match="the server's own words") as raised:
            await transport.request(method, "/x")
    assert (raised.value.status.reason, raised.value.status.code) == (reason, code)
    assert isinstance(raised.value, ApiError.from_status(raised.value.status).__class__)


async def test_a_status_in_the_body_wins_over_the_code_K147() -> None:
    async with FaultServer(Reply(500, status(409, "Conflict", "changed").body)) as server, Transport(server.config()) as transport:
        with pytest.raises(Conflict, match="changed"):
            await transport.request("GET", "/x")


async def test_an_error_shows_the_seconds_that_the_server_asks_to_wait_K148() -> None:
    async with FaultServer(Reply(429, headers={"Retry-After": "7"})) as server, Transport(server.config(), max_retries=0) as transport:
        with pytest.raises(TooManyRequests) as raised:
            await transport.request("GET", "/x")
    assert raised.value.retry_after == 7
    assert raised.value.status.details is not None
    assert raised.value.status.details.retry_after_seconds == 7


@pytest.mark.parametrize("line", [b"garbage\n", b'{"type": "STRANGE", "object": {}}\n'])
async def test_a_watch_frame_that_cannot_be_read_ends_the_watch_with_an_error_K149(line: bytes) -> None:
    async with (
        FaultServer(Reply(chunks=[line], end="hang")) as server,
        Client(Transport(server.config())) as client,
        client.watch(Pod, resource_version="1", namespace=ALL_NAMESPACES) as events,
    ):
        with pytest.raises(DecodeError):
            await anext(aiter(events))


async def test_a_watch_that_cannot_connect_is_opened_again_and_a_refused_watch_is_an_error_K150() -> None:
    event = frames(("ADDED", {"metadata": {"name": "a", "resourceVersion": "2"}}))
    clock = FakeClock()

    async def first(client: Client) -> str:
        async with client.watch(ConfigMap, resource_version="1", namespace=ALL_NAMESPACES) as events:
            return (await anext(aiter(events))).object.metadata.name

    async with FaultServer(DROP, event) as server, Client(Transport(server.config(), clock=clock), clock=clock) as client:
        assert await after(clock, first(client)) == "a"
    for code, kind in ((401, Unauthorized), (403, Forbidden)):
        async with FaultServer(Reply(code)) as server, Client(Transport(server.config(), clock=clock), clock=clock) as client:
            with pytest.raises(kind):
                await first(client)


@pytest.mark.parametrize("name", ["a/b", "a%2fb", ".", ".."])
async def test_a_name_that_would_be_another_path_is_refused_before_any_request_K151(name: str) -> None:
    async with FaultServer(Reply()) as server, Client(Transport(server.config())) as client:
        with pytest.raises(ValueError, match="name"):
            await client.get(Pod, name, namespace="shop")
        with pytest.raises(ValueError, match="namespace"):
            await client.get(Pod, "web-0", namespace=name)
    assert not server.received


async def test_a_limit_that_outlasts_the_deadline_fails_at_once_and_not_after_it_K155() -> None:
    clock = FakeClock()
    limiter, started = TokenBucket(0.1, 1, clock), clock.now()
    async with FaultServer(Reply()) as server, Transport(server.config(), clock=clock, limiter=limiter) as transport:
        await transport.request("GET", "/x")
        with pytest.raises(DeadlineError, match=r"rate limit \(0\.1 requests per second\) would hold the request back for 10\.0 s"):
            await transport.request("GET", "/x", timeout=5)
        assert clock.now() == started
        # The token that was not used is there for the next.
        await after(clock, transport.request("GET", "/x"), step=10)
        assert clock.now() == started + 10


async def test_the_pause_for_a_failing_server_doubles_and_the_first_success_ends_it_K156() -> None:
    clock = FakeClock()
    sequence, backoff = Sequence(clock), FailureBackoff(1, 4, clock)
    script = [Reply(500), Reply(429), Reply(503), Reply(500), Reply(), Reply()]
    manners: dict[str, Any] = {"clock": clock, "backoff": backoff, "hooks": [sequence]}
    async with FaultServer(*script) as server, Transport(server.config(), **manners) as transport:
        for _ in script:
            with contextlib.suppress(ApiError):
                await after(clock, transport.request("GET", "/x"))
    assert [one.partition(" ")[0] for one in sequence.seen[::2]] == ["0", "1", "3", "7", "11", "11"]


@pytest.mark.parametrize(
    ("environment", "pause"),
    [
        pytest.param({}, None, id="off by default"),
        pytest.param({"KUBE_CLIENT_BACKOFF_BASE": "1"}, None, id="off if only one is set"),
        pytest.param({"KUBE_CLIENT_BACKOFF_BASE": "0", "KUBE_CLIENT_BACKOFF_DURATION": "9"}, None, id="off if it is nothing"),
        pytest.param({"KUBE_CLIENT_BACKOFF_BASE": "2", "KUBE_CLIENT_BACKOFF_DURATION": "9"}, 2.0, id="on if both are set"),
    ],
)
def test_the_environment_asks_for_the_pause_K156(environment: dict[str, str], pause: float | None) -> None:
    backoff = FailureBackoff.from_environment(FakeClock(), environment)
    if backoff is not None:
        backoff.outcome(500)
    assert (None if backoff is None else backoff.pause()) == pause


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("/usr/bin/scaler.py", "scaler.py"),
        ("", "python"),
        ("-c", "python"),
        ("/x/site-packages/scaler/__main__.py", "scaler"),
        ("a b(c)", "abc"),
    ],
)
def test_a_program_names_itself_its_version_and_its_platform_as_client_go_does_K157(program: str, name: str) -> None:
    words = default_user_agent(program).split(" ")
    assert words[0].partition("/v")[0] == name
    assert re.fullmatch(r"\([a-z0-9]+/\w+\)", words[1])
    assert words[2].startswith("kubeloop/v")


async def test_the_programs_own_user_agent_is_sent_K157() -> None:
    async with FaultServer(Reply()) as server, Transport(server.config(), user_agent="scaler/1.2") as transport:
        await transport.request("GET", "/x")
        await transport.request("GET", "/x", headers={"user-agent": "other/1"})
    assert [one.headers["user-agent"] for one in server.received] == ["scaler/1.2", "other/1"]


def test_printing_a_configuration_or_a_request_shows_no_secret_K153(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> str:
        shown = ""
        who = Credentials(token="very-secret")

        class Print(Hook):
            def sending(self, request: SentRequest) -> None:
                nonlocal shown
                shown += repr(request)

        async with FaultServer(Reply(body=b"hidden")) as server:
            config = server.config(credentials=who)
            async with Transport(config, hooks=[Print()]) as transport:
                shown += repr(await transport.request("GET", "/x")) + repr(config) + str(config)
        return shown

    caplog.set_level(1, "kubeloop")
    shown = asyncio.run(run()) + caplog.text
    assert "very-secret" not in shown
    assert "HTTP status 200" in caplog.text
    assert logging.getLogger("kubeloop.transport").isEnabledFor(1)
