"""HTTP to one cluster: pooled connections, credentials, retries, errors as exceptions, streams. Knows no kinds."""

from kubeloop.transport.answer import Response
from kubeloop.transport.log_context import LogContext, log_context, log_field, logger_with_context
from kubeloop.transport.transport import Query, Stream, Transport
from kubeloop.transport.upgraded import NotUpgradedError, Upgraded

__all__ = [
    "LogContext",
    "NotUpgradedError",
    "Query",
    "Response",
    "Stream",
    "Transport",
    "Upgraded",
    "log_context",
    "log_field",
    "logger_with_context",
]
