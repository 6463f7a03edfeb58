"""Levels and stages of audit events. Source: audit.k8s.io/v1."""

from __future__ import annotations

from typing import Final

NONE: Final = "None"
METADATA: Final = "Metadata"
REQUEST: Final = "Request"
REQUEST_RESPONSE: Final = "RequestResponse"
#: From the one that logs least.
LEVELS: Final = (NONE, METADATA, REQUEST, REQUEST_RESPONSE)

RECEIVED: Final = "RequestReceived"
STARTED: Final = "ResponseStarted"
COMPLETE: Final = "ResponseComplete"
PANIC: Final = "Panic"
STAGES: Final = (RECEIVED, STARTED, COMPLETE, PANIC)
