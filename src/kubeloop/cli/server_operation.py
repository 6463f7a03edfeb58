"""Flags of ``kubeloop server`` for audit, limits, shutdown and logs, with kube-apiserver's names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kubeloop.cli.durations import DurationParameter
from kubeloop.cli.flags import FILE, flag
from kubeloop.cli.server_logging import FORMATS
from kubeloop.meta.errors import ConfigError

if TYPE_CHECKING:
    from kubeloop.apiserver.filters import Auditing, OperationOptions

#: Longest time in seconds that a request waits in a queue, as upstream.
_LONGEST_WAIT = 60.0
#: Seconds for running requests when the server ends.
_LONGEST_GRACE = 10.0


class _Verbosity(click.IntRange):
    """``-v=3`` as Kubernetes' programs take it, besides ``-v3`` and ``-v 3``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text: Any = value.removeprefix("=") if isinstance(value, str) else value
        return super().convert(text, param, ctx)


@dataclass(frozen=True, slots=True)
class OperationFlags:
    """Audit, limits, shutdown and logs. Times are in seconds."""

    audit_policy_file: Path | None = flag(type=FILE, help="Policy of the audit log: an audit.k8s.io/v1 Policy, YAML.")
    audit_log_path: str = flag("", metavar="FILE", help="File of the audit log (mode 0600), an event per line; - is stdout.")
    audit_log_maxsize: int = flag(0, type=click.IntRange(min=0), help="Size in MiB at which the audit log is rotated; 0: never.")
    audit_log_maxbackup: int = flag(0, type=click.IntRange(min=0), help="Number of rotated audit logs to retain; 0: all.")
    audit_log_maxage: int = flag(0, type=click.IntRange(min=0), help="Days to retain rotated audit logs; 0: no limit.")
    enable_priority_and_fairness: bool = flag(
        True,
        type=click.BOOL,
        show_default=True,
        help="Admit requests by FlowSchemas and priority levels, fairly; false: only limit their number.",
    )
    max_requests_inflight: int = flag(
        400,
        type=click.IntRange(min=0),
        show_default=True,
        help="Number of reading requests that run at a time; with priority and fairness, levels share the sum of this and the next.",
    )
    max_mutating_requests_inflight: int = flag(
        200, type=click.IntRange(min=0), show_default=True, help="Number of writing requests that run at a time."
    )
    request_timeout: float = flag(
        60.0,
        type=DurationParameter(),
        show_default=True,
        help="Seconds (or as in 1m) after which a request is answered with 504; watches and other streams have no such limit.",
    )
    shutdown_delay_duration: float = flag(
        0.0,
        type=DurationParameter(zero=True),
        show_default=True,
        help="Seconds that the server serves on after the signal, while /readyz fails.",
    )
    shutdown_watch_termination_grace_period: float = flag(
        0.0,
        type=DurationParameter(zero=True),
        show_default=True,
        help="Seconds over which the server ends watches when it stops; 0: all at once.",
    )
    logging_format: str = flag("text", type=click.Choice(FORMATS), show_default=True, help="Format of the log on stderr.")
    v: int = flag(
        0,
        "-v",
        "--v",
        type=_Verbosity(min=0),
        show_default=True,
        help="Log level: from 3 on the log has a line for each request, from 4 on everything, as with --verbose.",
    )

    def options(self) -> OperationOptions:
        """Return the server's options. Raises ConfigError for flags that exclude each other and for files that cannot be read."""
        from kubeloop.apiserver.filters import OperationOptions
        from kubeloop.apiserver.flow.control import FlowLimits

        wait = min(self.request_timeout / 4, _LONGEST_WAIT)
        fair = self.enable_priority_and_fairness
        return OperationOptions(
            auditing=self._auditing(),
            flow=FlowLimits(self.max_requests_inflight, self.max_mutating_requests_inflight, wait, fair),
            request_timeout=self.request_timeout,
            shutdown_delay=self.shutdown_delay_duration,
            shutdown_grace=min(self.request_timeout, _LONGEST_GRACE),
            watch_grace=self.shutdown_watch_termination_grace_period,
        )

    def _auditing(self) -> Auditing | None:
        """Return None without an audit log.

        Raises:
            ConfigError: The policy cannot be read or is invalid; one of the two flags lacks the other.
        """
        if self.audit_policy_file is None and not self.audit_log_path:
            return None
        if self.audit_policy_file is None:
            raise ConfigError("--audit-log-path needs --audit-policy-file FILE, which selects the requests to log")
        if not self.audit_log_path:
            raise ConfigError("--audit-policy-file needs --audit-log-path FILE, the file to write (- for standard output)")
        from kubeloop.apiserver.audit.log import AuditLog, Rotation
        from kubeloop.apiserver.audit.policy import AuditPolicy
        from kubeloop.apiserver.filters import Auditing
        from kubeloop.timing import SystemClock

        path = None if self.audit_log_path == "-" else Path(self.audit_log_path)
        rotation = Rotation(self.audit_log_maxsize, self.audit_log_maxbackup, self.audit_log_maxage)
        return Auditing(AuditPolicy.read(self.audit_policy_file), AuditLog(path, SystemClock(), rotation))
