"""OpenTelemetry spans for requests, one for each attempt: ``Transport(config, hooks=[Tracing()])``.

``pip install kubeloop[otel]`` installs the dependency.
Source: OpenTelemetry semantic conventions for HTTP client spans (1.23 and later, stable) and for Kubernetes attributes; W3C Trace Context.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from kubeloop.meta.errors import ConfigError
from kubeloop.transport.hooks import Hook, Outcome, SentRequest
from kubeloop.transport.round_tripper import parse_request_path

_KEY = "kubeloop.span"


class Tracing(Hook):
    """A hook that records a span for each attempt, as a child of the current span, and sends ``traceparent``.

    A span lasts until the complete response, or for watches and logs until its head. If ``tracer_provider`` is None, the global provider of
    the program is used; it does nothing until an SDK is set up. Spans contain paths but not queries, because commands of exec and selectors
    may be confidential.

    Raises:
        ConfigError: The package opentelemetry-api is not installed.
    """

    def __init__(self, tracer_provider: Any = None) -> None:
        try:
            self._trace: Any = import_module("opentelemetry.trace")
            self._propagate: Any = import_module("opentelemetry.propagate")
        except ImportError as error:
            raise ConfigError("tracing needs OpenTelemetry; install it: pip install 'kubeloop[otel]'") from error
        self._tracer = self._trace.get_tracer("kubeloop.transport", tracer_provider=tracer_provider)

    def sending(self, request: SentRequest) -> None:
        url = urlsplit(request.url)
        port = url.port or (443 if url.scheme == "https" else 80)
        what = parse_request_path(request.method, request.path)
        attributes: dict[str, str | int] = {
            "http.request.method": request.method,
            "url.full": f"{url.scheme}://{url.netloc}{url.path}",
            "server.address": url.hostname or "",
            "server.port": port,
        }
        if request.body is not None:
            attributes["http.request.body.size"] = len(request.body)
        if request.attempt:
            attributes["http.request.resend_count"] = request.attempt
        if what.resource:
            attributes["k8s.resource.name"] = f"{what.resource}.{what.group}" if what.group else what.resource
            attributes["k8s.request.verb"] = request.verb
            if what.subresource:
                attributes["k8s.resource.subresource"] = what.subresource
            if what.namespace:
                attributes["k8s.namespace.name"] = what.namespace
            if what.name:
                attributes["k8s.object.name"] = what.name
        name = f"{request.verb} {what.resource}" if what.resource else request.method
        span = self._tracer.start_span(name, kind=self._trace.SpanKind.CLIENT, attributes=attributes)
        request.notes[_KEY] = span
        carrier: dict[str, str] = {}
        self._propagate.inject(carrier, context=self._trace.set_span_in_context(span))
        for header, value in carrier.items():
            request.add(header, value)

    def answered(self, request: SentRequest, outcome: Outcome) -> None:
        span = request.notes.pop(_KEY, None)
        if span is None:
            return
        if outcome.status is not None:
            span.set_attribute("http.response.status_code", outcome.status)
            if outcome.size is not None:
                span.set_attribute("http.response.body.size", outcome.size)
            if outcome.status >= 400:
                span.set_attribute("error.type", str(outcome.status))
                span.set_status(self._trace.StatusCode.ERROR)
        elif outcome.error is not None:
            span.set_attribute("error.type", type(outcome.error).__qualname__)
            span.set_status(self._trace.StatusCode.ERROR, str(outcome.error))
        span.end()
