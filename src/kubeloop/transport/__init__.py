"""HTTP requests to one cluster: pooled connections, credentials, retries, errors as exceptions, streams.

This package works with bytes and does not depend on the types of Kubernetes kinds.
"""

from kubeloop.transport.answer import Response, ServerWarning, WarningHandler, ignore_warnings, log_once, once_each
from kubeloop.transport.hooks import Hook, Outcome, SentRequest
from kubeloop.transport.log_context import LogContext, log_context, log_field, log_fields, logger_with_context
from kubeloop.transport.round_tripper import NotUpgradedError, Upgraded
from kubeloop.transport.transport import Query, Stream, Transport

__all__ = [
    "Hook",
    "LogContext",
    "NotUpgradedError",
    "Outcome",
    "Query",
    "Response",
    "SentRequest",
    "ServerWarning",
    "Stream",
    "Transport",
    "Upgraded",
    "WarningHandler",
    "ignore_warnings",
    "log_context",
    "log_field",
    "log_fields",
    "log_once",
    "logger_with_context",
    "once_each",
]
