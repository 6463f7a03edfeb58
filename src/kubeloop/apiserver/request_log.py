"""A line in the log for each request. Source: k8s.io/apiserver pkg/server/httplog, whose names the fields have."""

from __future__ import annotations

import logging
from typing import Any

from kubeloop.apiserver.passage import Passage

_LOG = logging.getLogger(__name__)


def log_request(passage: Passage, status: int, seconds: float) -> None:
    """Of what a client sent, the head's harmless parts only: no header that may hold a credential, no token of the query, no body."""
    if not _LOG.isEnabledFor(logging.INFO):
        return
    from kubeloop.apiserver.audit.record import request_uri

    request = passage.request
    fields: dict[str, Any] = {
        "verb": passage.info.verb.upper(),
        "URI": request_uri(request),
        "latency": f"{seconds * 1000:.3f}ms",
        "userAgent": request.header("User-Agent"),
        "audit-ID": passage.audit_id,
        "srcIP": request.remote,
    }
    if passage.user is not None:
        fields["user"] = passage.user.name
    if passage.seat is not None:
        fields["apf_pl"], fields["apf_fs"] = passage.seat.flow.level.name, passage.seat.flow.schema.name
    fields["resp"] = status
    _LOG.info("HTTP", extra={"fields": fields})
