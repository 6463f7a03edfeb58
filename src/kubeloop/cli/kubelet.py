"""Commands of nodes: ``kubeloop kubelet``, also beside ``kubeloop server --pods process``, and ``kubeloop server node-config``."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubeloop.cli.flags import FILE, FOLDER, DurationParameter, flag, with_flags
from kubeloop.cli.group import Command
from kubeloop.cli.server_logging import EVERYTHING, FORMATS, configure
from kubeloop.meta.errors import ConfigError, KubeloopError
from kubeloop.meta.signals import on_signal
from kubeloop.tasks import end_tasks

if TYPE_CHECKING:
    from kubeloop.apiserver.handlers.kubelet.credentials import KubeletCredentials
    from kubeloop.apiserver.server import ApiServer
    from kubeloop.config import ClusterConfig
    from kubeloop.kubelet.addresses import RangeClaim
    from kubeloop.kubelet.kubelet import KubeletOptions
    from kubeloop.kubelet.node_folder import FolderLock
    from kubeloop.pki import CertificateAuthority

#: The node beside ``kubeloop server``.
NODE_NAME = "kubeloop-node"

_EPILOG = """\b
Examples:
  kubeloop kubelet --kubeconfig admin.conf --name worker-1 --image-map images.yaml
  kubeloop server --pods process --image-map images.yaml
"""


@dataclass(frozen=True, slots=True)
class KubeletFlags:
    """Flags of ``kubeloop kubelet``. A flag that kubelet has too has the same name."""

    kubeconfig: Path | None = flag(
        type=FILE, help="Kubeconfig of the node, or of a user that may request its certificate. Default: as kubectl finds it."
    )
    context: str = flag("", help="Context of the kubeconfig. Default: the current one.")
    name: str = flag("", "--name", "--hostname-override", help="Name of the node. Default: the host name.")
    image_map: Path | None = flag(type=FILE, help="YAML file that maps images to commands of this machine (docs/process-pods.md).")
    root_dir: Path = flag(
        Path("/var/lib/kubeloop-kubelet"),
        type=FOLDER,
        show_default=True,
        help="Folder for volumes, logs and the node's certificate. One kubelet uses it at a time.",
    )
    address: str = flag("127.0.0.1", show_default=True, help="Address of the node and of its endpoint.")
    port: int = flag(0, type=click.IntRange(0, 65535), help="Port of the endpoint for logs and commands; 0: any free one.")
    pod_cidr: str = flag("", metavar="CIDR", help="Addresses of pods, of 127.0.0.0/8. Default: a range that no other kubelet uses.")
    node_labels: str = flag("", metavar="KEY=VALUE,...", help="Labels of the node beside the usual ones.")
    sync_frequency: float = flag(
        10.0, type=DurationParameter(), show_default=True, help="Seconds (or as in 1m) between updates of volumes."
    )
    isolation: str = flag(
        "auto",
        type=click.Choice(["auto", "namespaces", "user-namespaces", "none"]),
        show_default=True,
        help="Isolation of containers from this machine; auto: the strongest that the kernel grants.",
    )
    dns: str = flag(
        "auto",
        type=click.Choice(["auto", "on", "off"]),
        show_default=True,
        help="Serve cluster DNS to pods, on port 53 of a loopback address: on requires it; auto uses /etc/hosts instead where it cannot.",
    )
    cgroups: str = flag(
        "auto",
        type=click.Choice(["auto", "on", "off"]),
        show_default=True,
        help="Enforce CPU and memory limits with cgroups: on requires them; without them memory is measured each second.",
    )
    anonymous_auth: bool = flag(False, help="Serve logs and commands without authentication: for tests.")
    logging_format: str = flag("text", type=click.Choice(FORMATS), help="Format of the log on stderr.")
    v: int = flag(0, "-v", "--v", help="Verbosity of the log; 4 shows everything.")

    def options(self) -> KubeletOptions:
        """Return the settings of the kubelet.

        Raises:
            ConfigError: A label is malformed.
        """
        from kubeloop.kubelet.kubelet import KubeletOptions
        from kubeloop.kubelet.runtime import Isolation

        labels = {}
        for pair in filter(None, self.node_labels.split(",")):
            key, equals, value = pair.partition("=")
            if not equals or not key:
                raise ConfigError(f"--node-labels {pair}: write KEY=VALUE")
            labels[key] = value
        return KubeletOptions(
            self.name or socket.gethostname().lower(),
            self.root_dir,
            self.image_map,
            self.address,
            self.port,
            self.pod_cidr,
            labels,
            self.sync_frequency,
            None if self.isolation == "auto" else Isolation(self.isolation),
            anonymous=self.anonymous_auth,
            dns=self.dns,
            cgroups=self.cgroups,
        )


@click.command(cls=Command, epilog=_EPILOG)
@with_flags(flags=KubeletFlags)
def kubelet(flags: KubeletFlags) -> None:
    """Run a node whose pods are processes of this machine, against any API server.

    Containers run commands that the image map names. They are no boundary against hostile programs: docs/process-pods.md.
    Prints "ready NAME" when the node is registered; ends on SIGINT or SIGTERM, and all its pods' processes with it.
    """
    configure(flags.logging_format, max(flags.v, 0) if flags.v < EVERYTHING else EVERYTHING)
    check_system()
    try:
        asyncio.run(_run(flags))
    except (KubeloopError, OSError) as error:
        raise click.ClickException(str(error)) from None


def check_system() -> None:
    """Check that this system supports process pods.

    Raises:
        ConfigError: The system is not Linux.
    """
    if sys.platform != "linux":
        raise ConfigError(f"process pods need Linux: /proc, namespaces and signals of a parent's end; this is {sys.platform}")


async def _run(flags: KubeletFlags) -> None:
    ending = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        on_signal(number, ending.set)
    from kubeloop.config import load_config
    from kubeloop.kubelet.kubelet import ProcessKubelet

    config = load_config(flags.kubeconfig, flags.context or None)
    node = ProcessKubelet(config, flags.options())
    running = asyncio.create_task(node.run(lambda: print(f"ready {node.options.name}", flush=True)), name="kubelet")
    ended = asyncio.create_task(ending.wait(), name="signal")
    try:
        await asyncio.wait({running, ended}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end_tasks(ended)
    if running.done():
        await running
    else:
        await end_tasks(running)


def server_credentials(authority: CertificateAuthority, folder: Path) -> KubeletCredentials:
    """Write the certificate by which the server connects to kubelets into a folder, and return the server's setting.

    Its group may do everything: each kubelet asks the server what the certificate's user may do.
    """
    from kubeloop.apiserver.handlers.kubelet.credentials import KubeletCredentials
    from kubeloop.endpoints.access import MASTERS
    from kubeloop.pki.files import write_secret

    issued = authority.issue("kube-apiserver-kubelet-client", (MASTERS,), client=True)
    folder.mkdir(mode=0o711, parents=True, exist_ok=True)
    certificate, key = (folder / f"apiserver-kubelet-client.{end}" for end in ("crt", "key"))
    write_secret(certificate, issued.certificate)
    write_secret(key, issued.key)
    return KubeletCredentials(certificate, key)


class ProcessPods:
    """The kubelet beside an embedded server.

    Args:
        image_map: The image map; None: no image can be pulled.
        folder: Folder for the kubelet's state; None: a temporary folder.
    """

    def __init__(self, image_map: Path | None, folder: Path | None) -> None:
        self._image_map = image_map
        self._given_folder = folder
        self._lock: FolderLock | None = None
        self._services: RangeClaim | None = None

    @property
    def _folder(self) -> Path:
        if self._given_folder is not None:
            return self._given_folder
        if self._lock is None:
            from kubeloop.kubelet.node_folder import FolderLock

            self._lock = FolderLock.create_temporary()
        return self._lock.folder

    def check(self) -> None:
        """Check the image map.

        Raises:
            ConfigError: It cannot be read, or is no image map.
        """
        from kubeloop.kubelet.images import ImageMap

        ImageMap(self._image_map)

    def claim_service_range(self, text: str) -> str:
        """Claim the cluster IPs of services, loopback addresses on which the kubelet's service proxy listens; return their range.

        A folder that is kept has the range for the next start, since the objects that are stored with it keep their cluster IPs.

        Args:
            text: The flag's value.

        Raises:
            ConfigError: Another server of this machine uses them, or the folder cannot be written.
        """
        from kubeloop.kubelet.addresses import claim_service_range
        from kubeloop.pki.files import write_secret

        folder = self._given_folder
        stored = folder / "cluster-ips" if folder is not None else None
        if not text and stored is not None and stored.exists():
            text = stored.read_text().strip()
        self._services = claim_service_range(text, folder)
        if self._services is not None:
            text = str(self._services.network)
        if folder is not None and stored is not None:
            try:
                folder.mkdir(mode=0o711, parents=True, exist_ok=True)
                write_secret(stored, f"{text}\n".encode())
            except OSError as error:
                raise ConfigError(
                    f"--data {folder.parent}: {error.strerror or error}; name a folder on a local disk that you may write"
                ) from None
        return text

    def clean_up(self) -> None:
        """Release the cluster IPs and delete the temporary folder."""
        if self._services is not None:
            self._services.close()
        if self._lock is not None:
            self._lock.remove()

    def server_credentials(self, authority: CertificateAuthority) -> KubeletCredentials:
        """Write the certificate by which the server connects to kubelets, and return the server's setting."""
        from kubeloop.pki.files import write_secret

        credentials = server_credentials(authority, self._folder)
        trusted = self._folder / "ca.crt"
        write_secret(trusted, authority.certificate)
        return replace(credentials, authority=trusted)

    async def run(self, api: ApiServer, works: asyncio.Event, settled: asyncio.Event) -> None:
        """Run the node until the call is cancelled.

        Args:
            api: The server.
            works: Is set when the controllers have done their first work.
            settled: Is set after that, when the node accepts pods.
        """
        from kubeloop.config import ClusterConfig, Credentials, Pem
        from kubeloop.kubelet.kubelet import KubeletOptions, ProcessKubelet

        administrator = api.administrator()
        config = ClusterConfig(
            server=api.url,
            name="kubeloop",
            tls_server_name=api.server_name,
            ca=Pem(data=api.authority),
            credentials=Credentials(client_certificate=Pem(data=administrator.certificate), client_key=Pem(data=administrator.key)),
            source="kubeloop server",
        )
        registered = asyncio.Event()
        node = ProcessKubelet(config, KubeletOptions(NODE_NAME, self._folder, self._image_map), self._lock)
        api.add_readiness("process-pods", lambda: node.healthy)
        running = asyncio.create_task(node.run(registered.set), name="process-kubelet")
        reporting = asyncio.create_task(_report(config, registered, works, settled), name="settled")
        try:
            await asyncio.wait((running, reporting), return_when=asyncio.FIRST_EXCEPTION)
            for task in (reporting, running):
                if task.done():
                    task.result()
        finally:
            await end_tasks(running, reporting)


async def _report(config: ClusterConfig, registered: asyncio.Event, works: asyncio.Event, settled: asyncio.Event) -> None:
    """Set ``settled`` when the controllers have done their first work and the node accepts pods."""
    from kubeloop.client import Client
    from kubeloop.controlplane.run import wait_settled
    from kubeloop.transport import Transport

    await registered.wait()
    await works.wait()
    async with Client(Transport(config)) as client:
        await wait_settled(client, (NODE_NAME,), controllers=())
    settled.set()


# ---------------------------------------------------------------------------------------------------------------- node-config

_NODE_CONFIG_EPILOG = """\b
Example:
  kubeloop server --nodes 0 --cert-dir pki --kubelet-certificate-authority pki/ca.crt --kubeconfig admin.conf
  kubeloop server node-config worker-1 --kubeconfig admin.conf --node-ip 192.168.1.10 --out worker-1
  sudo worker-1/start-kubelet.sh
"""


@dataclass(frozen=True, slots=True)
class NodeConfigFlags:
    """Flags of ``kubeloop server node-config``. A flag that kubelet or kube-proxy has too has the same name."""

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


@click.command(cls=Command, name="node-config", epilog=_NODE_CONFIG_EPILOG)
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
