"""The ID of a request, under which an API server's audit log has its events.

Source: Kubernetes documentation, "Auditing"; k8s.io/apiserver pkg/endpoints/filters (WithAuditInit).
"""

from __future__ import annotations

import os
from typing import Final

from kubeloop.serving.request import Request

#: Header with the ID of a request's audit events, in both directions.
AUDIT_ID: Final = "Audit-Id"


def audit_id_of(request: Request) -> str:
    """Return the audit ID that the client sent, or else a new random UUID."""
    requested = request.headers.get(AUDIT_ID)
    if requested:
        return requested
    digits = os.urandom(16).hex()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{'89ab'[int(digits[16], 16) & 3]}{digits[17:20]}-{digits[20:]}"
