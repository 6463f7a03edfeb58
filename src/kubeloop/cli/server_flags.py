"""Flags of ``kubeloop server`` that are neither for authentication nor for admission or operation."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

import click

from kubeloop.cli.durations import Duration
from kubeloop.cli.flags import FILE, FOLDER, flag


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
        """Raise ValueError for any other text."""
        if not ipaddress.ip_address(text).is_loopback:
            raise ValueError(f"{text} can be reached from elsewhere, and kubeloop serves this machine only; use 127.0.0.1")


@dataclass(frozen=True, slots=True)
class ServerFlags:
    """Addresses, storage, certificates and built-in controllers. Times are in seconds."""

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
    no_controllers: bool = flag(False, help="Do not run the built-in controllers: Deployments get no Pods, and so on.")
    service_cluster_ip_range: str = flag("", metavar="CIDR", help="Cluster IPs of services. Default: 10.0.0.0/24.")
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
        type=Duration(),
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
    event_ttl: float = flag(3600.0, type=Duration(), show_default=True, help="Seconds (or as in 1h) after which Events are deleted.")
    min_request_timeout: float = flag(
        1800.0,
        type=Duration(),
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
