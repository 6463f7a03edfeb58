"""The ServiceCIDR that stands for the range of cluster IPs that the server was started with.

Source: pkg/controlplane/controller/defaultservicecidr.
"""

from __future__ import annotations

from typing import Any

JSONObject = dict[str, Any]


def default_service_cidr(cidr: str, now: str) -> JSONObject:
    """``now``: RFC 3339."""
    message = "Kubernetes default Service CIDR is ready"
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": now, "reason": "", "message": message}
    return {"metadata": {"name": "kubernetes"}, "spec": {"cidrs": [cidr]}, "status": {"conditions": [ready]}}
