"""``kubeloop server node-config``: the files with which a real kubelet joins a server."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import click

from kubeloop.cli.flags import FILE, FOLDER, flag, with_flags
from kubeloop.cli.group import Command
from kubeloop.meta.errors import KubeloopError

_EPILOG = """\b
Example:
  kubeloop server --nodes 0 --cert-dir pki --kubelet-certificate-authority pki/ca.crt --kubeconfig admin.conf
  kubeloop server node-config worker-1 --kubeconfig admin.conf --node-ip 192.168.1.10 --out worker-1
  sudo worker-1/start-kubelet.sh
"""


@dataclass(frozen=True, slots=True)
class NodeConfigFlags:
    """Flags of the command. Names are kubelet's and kube-proxy's where they have them."""

    node_ip: str = flag(required=True, metavar="IP", help="Address of the node; the server reaches the kubelet there.")
    out: Path | None = flag(type=FOLDER, help="Folder to write, which must be empty or missing. Default: the node's name.")
    kubeconfig: Path | None = flag(type=FILE, help="Kubeconfig of an administrator. Default: $KUBECONFIG or ~/.kube/config.")
    context: str = flag("", help="Context of the kubeconfig. Default: the current one.")
    server: str = flag("", metavar="URL", help="URL at which the node reaches the server. Default: that of the kubeconfig.")
    cluster_dns: str = flag(
        "10.0.0.10", metavar="IP", show_default=True, help="Cluster IP of the DNS service; empty: pods use the node's resolver."
    )
    cluster_domain: str = flag("cluster.local", show_default=True, help="Domain of services.")
    cluster_cidr: str = flag("", metavar="CIDR", help="Range of pod IPs, for kube-proxy. Default: none.")
    container_runtime_endpoint: str = flag(
        "unix:///run/containerd/containerd.sock", show_default=True, metavar="URL", help="Socket of the container runtime."
    )


@click.command(cls=Command, name="node-config", epilog=_EPILOG)
@click.argument("name")
@with_flags(flags=NodeConfigFlags)
def node_config(name: str, flags: NodeConfigFlags) -> None:
    """Write the files with which a real kubelet joins a running server as node NAME.

    The folder gets kubelet.kubeconfig, kubelet.yaml, the certificate of the kubelet's endpoint, ca.crt and start-kubelet.sh, and the same
    for kube-proxy. The keys are made here; the server's controllers sign their certificates. docs/real-nodes.md has the whole setup.
    """
    from kubeloop.config import load_config
    from kubeloop.kubelet.node_files import NodeSettings, write_node_files

    folder = flags.out or Path(name)
    try:
        settings = NodeSettings(
            name,
            flags.node_ip,
            flags.server,
            flags.cluster_dns,
            flags.cluster_domain,
            flags.cluster_cidr,
            flags.container_runtime_endpoint,
        )
        asyncio.run(write_node_files(load_config(flags.kubeconfig, flags.context or None), settings, folder))
    except (KubeloopError, OSError) as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"wrote {folder}; start the kubelet as root on the node: {folder}/start-kubelet.sh")
