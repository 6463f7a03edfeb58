"""Flags of ``kubeloop server``, with kube-apiserver's names: admission, authentication, audit and limits, and the server itself."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kubeloop.cli.flags import FILE, FOLDER, DurationParameter, flag
from kubeloop.cli.server_logging import FORMATS
from kubeloop.meta.errors import ConfigError

if TYPE_CHECKING:
    from kubeloop.apiserver.admission.plugins import AdmissionOptions
    from kubeloop.apiserver.authentication.options import AuthenticationOptions
    from kubeloop.apiserver.filters import Auditing, OperationOptions
    from kubeloop.pki import SigningKey


@dataclass(frozen=True, slots=True)
class AdmissionFlags:
    """Flags of ``kubeloop server`` for admission plug-ins. Each value may contain several names, separated by commas."""

    enable_admission_plugins: tuple[str, ...] = flag((), metavar="NAME,...", help="Plug-ins to run in addition to the default ones.")
    disable_admission_plugins: tuple[str, ...] = flag((), metavar="NAME,...", help="Default plug-ins to leave out.")

    def options(self) -> AdmissionOptions:
        """Return the server's options. Raises ConfigError for unknown names and for plug-ins that cannot be disabled."""
        from kubeloop.apiserver.admission.plugins import AdmissionOptions
        from kubeloop.apiserver.admission.table import enabled_plugins, split_names

        options = AdmissionOptions(split_names(self.enable_admission_plugins), split_names(self.disable_admission_plugins))
        enabled_plugins(options.enable, options.disable)
        return options


_PROXY = "Request headers of front proxies for the"


@dataclass(frozen=True, slots=True)
class AuthenticationFlags:
    """Flags of ``kubeloop server`` for the credentials that the server accepts. A text may have several values, separated by commas."""

    token_auth_file: Path | None = flag(type=FILE, help='Bearer tokens: CSV lines token,user,uid,"group1,group2".')
    anonymous_auth: bool = flag(
        True,
        type=click.BOOL,
        show_default=True,
        help="Accept requests without credentials as system:anonymous; false: answer them with 401.",
    )
    client_ca_file: Path | None = flag(type=FILE, help="Authorities of client certificates besides the server's own, PEM.")
    tls_cert_file: Path | None = flag(type=FILE, help="The server's certificate, PEM. Default: a certificate that its own authority signs.")
    tls_private_key_file: Path | None = flag(type=FILE, help="Key of --tls-cert-file, PEM.")
    service_account_issuer: tuple[str, ...] = flag(
        (),
        metavar="URL",
        help="Issuer of service account tokens; of several, the first issues and all are accepted. "
        "Default: https://kubernetes.default.svc.cluster.local.",
    )
    service_account_key_file: tuple[Path, ...] = flag(
        (), type=FILE, help="Keys that verify service account tokens besides the signing key, PEM; may be repeated."
    )
    service_account_signing_key_file: Path | None = flag(
        type=FILE, help="Key that signs service account tokens, PEM. Default: sa.key in --cert-dir, made if it is missing."
    )
    service_account_jwks_uri: str = flag(
        "", metavar="URL", help="Address of the keys for verifiers. Default: /openid/v1/jwks at this server."
    )
    service_account_max_token_expiration: float | None = flag(
        type=DurationParameter(), help="Longest lifetime of a token in seconds (or as in 24h). Default: no limit."
    )
    service_account_extend_token_expiration: bool = flag(
        True,
        type=click.BOOL,
        show_default=True,
        help="Give tokens that kubelets request a lifetime of a year, for programs that read their token only once.",
    )
    api_audiences: tuple[str, ...] = flag(
        (), metavar="NAMES", help="Names of this server, separated by commas: a token must be meant for one of them. Default: the issuers."
    )
    requestheader_client_ca_file: Path | None = flag(
        type=FILE, help="Authority of front proxies' certificates, PEM. Default: no front proxies."
    )
    requestheader_allowed_names: tuple[str, ...] = flag((), metavar="NAMES", help="Common names of front proxies. Default: all.")
    requestheader_username_headers: tuple[str, ...] = flag((), metavar="HEADERS", help=f"{_PROXY} user name.")
    requestheader_uid_headers: tuple[str, ...] = flag((), metavar="HEADERS", help=f"{_PROXY} user's UID.")
    requestheader_group_headers: tuple[str, ...] = flag((), metavar="HEADERS", help=f"{_PROXY} user's groups.")
    requestheader_extra_headers_prefix: tuple[str, ...] = flag((), metavar="PREFIXES", help=f"{_PROXY} user's extra values, by prefix.")

    def options(self, folder: Path | None) -> AuthenticationOptions:
        """Return the server's options.

        ``folder`` contains the signing key if no flag names one; None: the server makes a new key.

        Raises:
            ConfigError: The text names the flag or the file, and the remedy.
        """
        from kubeloop.apiserver.authentication.options import AuthenticationOptions, TokenSettings
        from kubeloop.endpoints.request_header import RequestHeaders

        if (self.tls_cert_file is None) != (self.tls_private_key_file is None):
            raise ConfigError("--tls-cert-file and --tls-private-key-file belong together: name both or none")
        accounts = TokenSettings.read(
            default_key=self._own_key(folder),
            issuers=self.service_account_issuer,
            key_files=self.service_account_key_file,
            signing_file=self.service_account_signing_key_file,
            api_audiences=_split(self.api_audiences),
            keys_at=self.service_account_jwks_uri,
            max_expiration=self.service_account_max_token_expiration or 0.0,
            extend=self.service_account_extend_token_expiration,
        )
        proxies = RequestHeaders(
            _split(self.requestheader_username_headers),
            _split(self.requestheader_uid_headers),
            _split(self.requestheader_group_headers),
            _split(self.requestheader_extra_headers_prefix),
            _split(self.requestheader_allowed_names),
        )
        proxies.check()
        return AuthenticationOptions(
            accounts,
            self.token_auth_file,
            self.client_ca_file,
            self.requestheader_client_ca_file,
            proxies,
            self.anonymous_auth,
            self.tls_cert_file,
            self.tls_private_key_file,
        )

    def _own_key(self, folder: Path | None) -> SigningKey | None:
        if folder is None or self.service_account_signing_key_file is not None:
            return None
        from kubeloop.pki.files import load_or_create_signing_key

        return load_or_create_signing_key(folder)


def _split(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(one for value in values for one in value.split(",") if value)


#: Longest time in seconds that a request waits in a queue, as upstream.
_LONGEST_WAIT = 60.0
#: Seconds for running requests when the server ends.
_LONGEST_GRACE = 10.0


class _Verbosity(click.IntRange):
    """A verbosity, which may be written ``-v=3``, as for Kubernetes' programs, besides ``-v3`` and ``-v 3``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text: Any = value.removeprefix("=") if isinstance(value, str) else value
        return super().convert(text, param, ctx)


@dataclass(frozen=True, slots=True)
class OperationFlags:
    """Flags of ``kubeloop server`` for audit, limits, shutdown and logs. Times are in seconds."""

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
        """Return the audit policy with its log, or None without an audit log.

        Raises:
            ConfigError: The policy cannot be read or is invalid, or only one of the two flags is set.
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


class IpAddress(click.ParamType[str]):
    """An IP address, as Go's flags of type ip take it; empty: none."""

    name = "ip"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        try:
            self.check(text)
        except ValueError as fault:
            self.fail(str(fault), param, ctx)
        return text

    def check(self, text: str) -> None:
        """Raise ValueError for a text that is no address."""
        if text:
            ipaddress.ip_address(text)


class LoopbackAddress(IpAddress):
    """An IP address that only this machine can reach."""

    def check(self, text: str) -> None:
        """Raise ValueError for a text that is no loopback address."""
        if not ipaddress.ip_address(text).is_loopback:
            raise ValueError(f"{text} can be reached from elsewhere, and kubeloop serves this machine only; use 127.0.0.1")


@dataclass(frozen=True, slots=True)
class ServerFlags:
    """Flags of ``kubeloop server`` for addresses, storage, certificates and built-in controllers. Times are in seconds."""

    port: int = flag(
        0,
        "--port",
        "--secure-port",
        type=click.IntRange(0, 65535),
        show_default=True,
        help="Port to listen on; 0 takes any free port.",
    )
    bind_address: str = flag(
        "127.0.0.1",
        type=LoopbackAddress(),
        show_default=True,
        help="Address of the loopback interface to listen on; the server accepts no other.",
    )
    advertise_address: str = flag(
        "",
        type=IpAddress(),
        metavar="IP",
        help="Address in the endpoints of the service default/kubernetes. Default: --bind-address.",
    )
    kubeconfig: Path | None = flag(type=FILE, help="File to write an administrator's kubeconfig to (mode 0600). Default: a temporary file.")
    pods: str = flag(
        "simulated",
        type=click.Choice(["simulated", "process"]),
        show_default=True,
        help="Kind of pods: simulated, without containers, or processes of this machine (docs/process-pods.md).",
    )
    image_map: Path | None = flag(type=FILE, help="With --pods process: YAML file that maps images to commands of this machine.")
    no_controllers: bool = flag(False, help="Do not run the built-in controllers: Deployments get no Pods, and so on.")
    controllers: str = flag(
        "*",
        metavar="NAMES",
        help="Controllers to run: '*' all that are on by default, 'foo' the one named foo, '-foo' not that one. Default: '*'.",
    )
    leader_elect: bool = flag(
        True,
        type=click.BOOL,
        show_default=True,
        help="Let controllers and scheduler work only while they hold the Leases kube-system/kube-controller-manager and kube-scheduler.",
    )
    scheduler_config: Path | None = flag(type=FILE, help="KubeSchedulerConfiguration with the scheduler's profiles. Default: one profile.")
    nodes: str = flag("1", metavar="COUNT|NAMES", show_default=True, help="Simulated nodes: a number, or names with commas between them.")
    simulation: Path | None = flag(type=FILE, help="YAML file with simulated nodes and the behaviour of pods. docs/server.md describes it.")
    metrics: bool = flag(
        False, help="Serve the usage of nodes and pods, simulated or of kubelets, at metrics.k8s.io, for kubectl top and autoscalers."
    )
    service_cluster_ip_range: str = flag(
        "", metavar="CIDR", help="Cluster IPs of services. Default: 10.0.0.0/24; with --pods process a range of 127.96.0.0/11."
    )
    service_node_port_range: str = flag("", metavar="PORTS", help="Node ports of services. Default: 30000-32767.")
    data: Path | None = flag(
        type=FOLDER, help="Folder to store all objects in, so that they outlive the server. Default: objects are in memory."
    )
    unsafe_no_fsync: bool = flag(
        False, help="With --data: answer a write before it is on disk. It survives the end of the server, not a loss of power."
    )
    cert_dir: Path | None = flag(
        type=FOLDER,
        help="Folder of the certificate authority (ca.crt, ca.key): kubeconfigs of one run work in the next. "
        "Default: pki in the folder of --data; without --data, a new authority each time.",
    )
    history: float = flag(
        300.0,
        "--history",
        "--etcd-compaction-interval",
        type=DurationParameter(),
        show_default=True,
        help="Seconds (or as in 5m) of history for watches and lists of old versions; older versions are answered with 410 Expired.",
    )
    history_revisions: int = flag(
        0, type=click.IntRange(min=0), help="Number of the newest changes to store, whatever their age; 0: no limit."
    )
    kubelet_client_certificate: Path | None = flag(type=FILE, help="Certificate for requests to kubelets (logs, exec ...), PEM.")
    kubelet_client_key: Path | None = flag(type=FILE, help="Key of --kubelet-client-certificate, PEM.")
    kubelet_certificate_authority: Path | None = flag(
        type=FILE, help="Authority of kubelets' certificates, PEM. Default: their certificates are not verified."
    )
    event_ttl: float = flag(
        3600.0, type=DurationParameter(), show_default=True, help="Seconds (or as in 1h) after which Events are deleted."
    )
    min_request_timeout: float = flag(
        1800.0,
        type=DurationParameter(),
        show_default=True,
        help="Shortest duration of a watch that names no timeout; the longest is twice that.",
    )
    authorization_mode: str = flag(
        "Node,RBAC",
        show_default=True,
        metavar="MODES",
        help="Authorizers in their order, of Node, RBAC, AlwaysAllow, AlwaysDeny.",
    )
    allow_remote_backends: bool = flag(
        False, help="Call webhooks and servers of APIServices at any address. Default: only on loopback; other calls fail."
    )
    allow_loopback_endpoints: bool = flag(
        False,
        help="Allow loopback addresses in Endpoints and EndpointSlices, for programs that balance connections to servers of this machine. "
        "With --pods process they are always allowed. Default: refuse them, as Kubernetes does.",
    )
    descriptions: str = flag(
        "",
        metavar="FILE|CONTEXT",
        help="Import the texts of kubectl explain from an OpenAPI document, or from the cluster of a context of your kubeconfig. "
        "Default: the texts of the last import, else short ones.",
    )
    verbose: bool = flag(False, help="Log more, to stderr.")
    exit_with_stdin: bool = flag(False, hidden=True, help="End when standard input is closed: for programs that start this one.")
    exit_with_parent: bool = flag(False, hidden=True, help="End when the program that started this one has ended.")
    no_kubeconfig: bool = flag(False, hidden=True, help="Write no kubeconfig: for programs that bring their own certificates.")
