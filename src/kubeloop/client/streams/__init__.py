"""Streams to and from pods: logs, commands, forwarded ports, files, and HTTP requests through the API server.

``client.pods`` has the methods; this package has their results and errors. It is loaded at its first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubeloop.client.streams.errors import CommandFailed, CopyError, ForwardingError, OutputTooLarge, StreamError
    from kubeloop.client.streams.file_copy import CopyProgress, CopyResult
    from kubeloop.client.streams.logs import Log, LogCall
    from kubeloop.client.streams.merged_logs import LogLine, MergedLogs
    from kubeloop.client.streams.pod_proxy import ProxyCall
    from kubeloop.client.streams.port_forward import ForwardedPort, PortForward
    from kubeloop.client.streams.session import ExecResult, ExecSession, Output

_HOMES = {
    "CommandFailed": "errors",
    "CopyError": "errors",
    "CopyProgress": "file_copy",
    "CopyResult": "file_copy",
    "ExecResult": "session",
    "ExecSession": "session",
    "ForwardedPort": "port_forward",
    "ForwardingError": "errors",
    "Log": "logs",
    "LogCall": "logs",
    "LogLine": "merged_logs",
    "MergedLogs": "merged_logs",
    "Output": "session",
    "OutputTooLarge": "errors",
    "PortForward": "port_forward",
    "ProxyCall": "pod_proxy",
    "StreamError": "errors",
}

__all__ = [
    "CommandFailed",
    "CopyError",
    "CopyProgress",
    "CopyResult",
    "ExecResult",
    "ExecSession",
    "ForwardedPort",
    "ForwardingError",
    "Log",
    "LogCall",
    "LogLine",
    "MergedLogs",
    "Output",
    "OutputTooLarge",
    "PortForward",
    "ProxyCall",
    "StreamError",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
