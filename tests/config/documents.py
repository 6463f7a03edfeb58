"""Kubeconfigs that tests write."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kubeloop.codec import write_yaml

V1 = "client.authentication.k8s.io/v1"


def document(
    cluster: Mapping[str, Any] | None = None, user: Mapping[str, Any] | None = None, current_context: Any = "x", **changes: Any
) -> dict[str, Any]:
    """A kubeconfig of one context ``x``, cluster ``c`` and user ``u``."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "https://one.example:6443", **(cluster or {})}}],
        "users": [{"name": "u", "user": {**(user or {})}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": current_context,
        **changes,
    }


def write(path: Path, content: dict[str, Any] | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else write_yaml(content))
    return path


def script(path: Path, text: str) -> Path:
    """A program of the shell: it starts in a millisecond."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path
