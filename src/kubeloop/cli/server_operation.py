"""Operation flags of ``kubeloop server``, named as kube-apiserver's: audit, limits, shutdown, logs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kubeloop.cli.durations import DurationParameter
from kubeloop.cli.server_logging import FORMATS
from kubeloop.meta.errors import ConfigError

if TYPE_CHECKING:
    from kubeloop.apiserver.instrumentation import Auditing, OperationOptions

_FILE = click.Path(dir_okay=False, path_type=Path)
_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class OperationSettings:
    """The values of the flags, one field each."""

    audit_policy_file: Path | None
    audit_log_path: str
    audit_log_maxsize: int
    audit_log_maxbackup: int
    audit_log_maxage: int
    enable_priority_and_fairness: bool
    max_requests_inflight: int
    max_mutating_requests_inflight: int
    request_timeout: float
    shutdown_delay_duration: float
    shutdown_watch_termination_grace_period: float
    logging_format: str
    v: int

    def options(self) -> OperationOptions:
        """Convert to options. Raises ConfigError for conflicting flags, and for unreadable files."""
        from kubeloop.apiserver.flow.control import FlowLimits
        from kubeloop.apiserver.instrumentation import OperationOptions

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
        """Return the audit settings; None: no audit log is requested.

        Raises:
            ConfigError: the policy cannot be read or is malformed; one of the two flags is missing.
        """
        if self.audit_policy_file is None and not self.audit_log_path:
            return None
        if self.audit_policy_file is None:
            raise ConfigError("--audit-log-path needs a policy, which selects the logged requests: add --audit-policy-file FILE")
        if not self.audit_log_path:
            raise ConfigError("--audit-policy-file needs a log: add --audit-log-path FILE (- for standard output)")
        from kubeloop.apiserver.audit.log import AuditLog, Rotation
        from kubeloop.apiserver.audit.policy import Policy
        from kubeloop.apiserver.instrumentation import Auditing
        from kubeloop.timing import SystemClock

        path = None if self.audit_log_path == "-" else Path(self.audit_log_path)
        rotation = Rotation(self.audit_log_maxsize, self.audit_log_maxbackup, self.audit_log_maxage)
        return Auditing(Policy.read(self.audit_policy_file), AuditLog(path, SystemClock(), rotation))


class _Verbosity(click.IntRange):
    """Parses ``-v=3`` as Kubernetes' programs do, besides ``-v3`` and ``-v 3``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        given: Any = value.removeprefix("=") if isinstance(value, str) else value
        return super().convert(given, param, ctx)


#: Maximum seconds in which a request waits for its turn, as upstream.
_LONGEST_WAIT = 60.0
#: Seconds for running requests when the server ends.
_LONGEST_GRACE = 10.0

_OPTIONS = (
    click.option("--audit-policy-file", type=_FILE, help="What the audit log is to hold: an audit.k8s.io/v1 Policy, YAML."),
    click.option("--audit-log-path", default="", metavar="FILE", help="Where to write it (mode 0600), an event a line; - is stdout."),
    click.option("--audit-log-maxsize", type=click.IntRange(min=0), default=0, help="MiB after which that file is put aside; 0: never."),
    click.option("--audit-log-maxbackup", type=click.IntRange(min=0), default=0, help="Files put aside that are kept; 0: all."),
    click.option("--audit-log-maxage", type=click.IntRange(min=0), default=0, help="Days for which they are kept; 0: for ever."),
    click.option(
        "--enable-priority-and-fairness",
        type=click.BOOL,
        default=True,
        show_default=True,
        help="Let requests in by FlowSchemas and priority levels, fairly; false: only limit how many there are.",
    ),
    click.option(
        "--max-requests-inflight",
        type=click.IntRange(min=0),
        default=400,
        show_default=True,
        help="Requests that read, carried out at a time; with fairness, priority levels share this and the next together.",
    ),
    click.option(
        "--max-mutating-requests-inflight",
        type=click.IntRange(min=0),
        default=200,
        show_default=True,
        help="Requests that write, carried out at a time.",
    ),
    click.option(
        "--request-timeout",
        type=DurationParameter(),
        default=60.0,
        show_default=True,
        help="Seconds (or as in 1m) that a request may take, watches and other streams apart; then it is answered with 504.",
    ),
    click.option(
        "--shutdown-delay-duration",
        type=DurationParameter(zero=True),
        default=0.0,
        show_default=True,
        help="Seconds for which the server goes on serving after the signal, while /readyz fails.",
    ),
    click.option(
        "--shutdown-watch-termination-grace-period",
        type=DurationParameter(zero=True),
        default=0.0,
        show_default=True,
        help="Seconds over which watches are ended then; 0: all at once.",
    ),
    click.option("--logging-format", type=click.Choice(FORMATS), default="text", show_default=True, help="Of the log on stderr."),
    click.option(
        "-v",
        "--v",
        type=_Verbosity(min=0),
        default=0,
        show_default=True,
        help="How much is logged: from 3 on a line for each request, from 4 on everything, as by --verbose.",
    ),
)


def operation_options(command: _Command) -> _Command:
    """Add the flags; ``command`` gets them as one argument, ``operation``."""

    @functools.wraps(command)
    def run(*positional: Any, **values: Any) -> Any:
        own = {field.name: values.pop(field.name) for field in fields(OperationSettings)}
        return command(*positional, operation=OperationSettings(**own), **values)

    for option in reversed(_OPTIONS):
        run = option(run)
    return run  # type: ignore[return-value]  # click's decorators keep the called function, as wraps does
