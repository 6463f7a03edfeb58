"""Spans of requests, as OpenTelemetry's own API sees them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, SpanKind, TraceFlags, Tracer, TracerProvider

from kubeloop.meta import NotFound, TransportError
from kubeloop.timing import FakeClock
from kubeloop.transport import Transport
from kubeloop.transport.instrumentation.tracing import Tracing
from tests.faults import DROP, FaultServer, Reply

TRACE = 0x1234


class Recorded(NonRecordingSpan):
    """A span that remembers."""

    def __init__(self, number: int, name: str, parent: int, attributes: Mapping[str, Any]) -> None:
        super().__init__(SpanContext(TRACE, number, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED)))
        self.name, self.parent, self.attributes = name, parent, dict(attributes)
        self.status: tuple[Any, ...] = ()
        self.ended = False

    def set_attribute(self, key: str, value: Any) -> None:
        self.attributes[key] = value

    def set_status(self, *status: Any) -> None:
        self.status = status

    def end(self, end_time: int | None = None) -> None:
        self.ended = True


class Recorder(TracerProvider, Tracer):
    def __init__(self) -> None:
        self.spans: list[Recorded] = []

    def get_tracer(self, *_: Any, **__: Any) -> Tracer:
        return self

    def start_span(self, name: str, context: Context | None = None, kind: SpanKind = SpanKind.INTERNAL, *_: Any, **more: Any) -> Span:
        parent = trace.get_current_span(context).get_span_context().span_id
        span = Recorded(len(self.spans) + 1, name, parent, {**more["attributes"], "kind": kind})
        self.spans.append(span)
        return span

    def start_as_current_span(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("a span that is current would be seen by other tasks of the program")

    @contextmanager
    def block(self, name: str) -> Iterator[None]:
        """A span of the program's own, current in the block."""
        with trace.use_span(self.start_span(name, attributes={})):
            yield


async def test_a_request_is_a_client_span_that_says_what_was_asked_of_whom() -> None:
    spans = Recorder()
    async with FaultServer(Reply(201, b"made")) as server, Transport(server.config(), hooks=[Tracing(spans)]) as transport:
        await transport.request("PUT", "/apis/apps/v1/namespaces/shop/deployments/web/status", query={"dryRun": "All"}, body=b"{}")
    span = spans.spans[0]
    assert (span.name, span.ended, span.status) == ("update deployments", True, ())
    assert span.attributes == {
        "kind": SpanKind.CLIENT,
        "http.request.method": "PUT",
        "http.request.body.size": 2,
        "url.full": f"https://127.0.0.1:{server.port}/apis/apps/v1/namespaces/shop/deployments/web/status",
        "server.address": "127.0.0.1",
        "server.port": server.port,
        "k8s.resource.name": "deployments.apps",
        "k8s.resource.subresource": "status",
        "k8s.request.verb": "update",
        "k8s.namespace.name": "shop",
        "k8s.object.name": "web",
        "http.response.status_code": 201,
        "http.response.body.size": 4,
    }


async def test_the_server_gets_the_span_of_the_request_and_spans_stand_below_the_current_one() -> None:
    spans = Recorder()
    async with FaultServer(Reply()) as server, Transport(server.config(), hooks=[Tracing(spans)]) as transport:
        with spans.block("reconcile"):
            await transport.request("GET", "/version")
    assert (spans.spans[1].name, spans.spans[1].parent) == ("GET", 1)
    assert server.received[0].headers["traceparent"] == f"00-{TRACE:032x}-{2:016x}-01"


async def test_each_try_is_a_span_and_failures_say_why() -> None:
    spans = Recorder()
    script = [DROP, Reply(404), DROP]
    async with FaultServer(*script) as server, Transport(server.config(), clock=FakeClock(), hooks=[Tracing(spans)]) as transport:
        with pytest.raises(NotFound):
            await transport.request("GET", "/x")
        with pytest.raises(TransportError):
            await transport.request("DELETE", "/x")
    assert [span.attributes["error.type"] for span in spans.spans] == ["IncompleteAnswerError", "404", "IncompleteAnswerError"]
    assert [span.attributes.get("http.request.resend_count") for span in spans.spans] == [None, 1, None]
    assert all(span.ended and span.status[0] is trace.StatusCode.ERROR for span in spans.spans)


async def test_a_watch_is_a_span_until_its_head() -> None:
    spans = Recorder()
    async with (
        FaultServer(Reply(chunks=[b"x"])) as server,
        Transport(server.config(), hooks=[Tracing(spans)]) as transport,
        transport.stream("GET", "/api/v1/pods", query={"watch": True}),
    ):
        assert (spans.spans[0].name, spans.spans[0].ended) == ("watch pods", True)


def test_without_opentelemetry_the_error_says_what_to_install() -> None:
    program = """
import sys
sys.modules["opentelemetry"] = sys.modules["opentelemetry.trace"] = None
from kubeloop.transport.instrumentation.tracing import Tracing
try:
    Tracing()
except Exception as error:
    print(type(error).__name__, error)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "ConfigError tracing needs OpenTelemetry; install it: pip install 'kubeloop[otel]'\n"
