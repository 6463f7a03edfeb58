"""``kubeloop server``: the embedded API server with its controllers, as a command."""

from __future__ import annotations

import asyncio
import asyncio.sslproto
import gc
import importlib
import ipaddress
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubeloop.cli.durations import DurationParameter
from kubeloop.cli.group import CommandGroup
from kubeloop.cli.server_admission import AdmissionSettings, admission_options
from kubeloop.cli.server_authentication import AuthenticationFlags, authentication_flags
from kubeloop.cli.server_commands import compact, snapshot
from kubeloop.cli.server_logging import EVERYTHING, configure
from kubeloop.cli.server_operation import OperationSettings, operation_options
from kubeloop.meta.errors import ConfigError, KubeloopError
from kubeloop.meta.signals import on_signal
from kubeloop.tasks import end_tasks

if TYPE_CHECKING:
    from kubeloop.apiserver.server import ApiServer
    from kubeloop.apiserver.storage import Storage
    from kubeloop.schema.descriptions import Texts

_LOG = logging.getLogger("kubeloop.cli.server")

_FILE = click.Path(dir_okay=False, path_type=Path)
_FOLDER = click.Path(file_okay=False, path_type=Path)

#: Bytes that asyncio allocates for each end of a TLS connection, to read into; its own 256 KiB make 30 MiB of the built-in controllers'
#: 60 watches. A TLS record has 16 KiB at most (RFC 8446, section 5.1), so that two fit; larger bodies take more reads.
_TLS_READ_SIZE = 32 * 1024

#: Seconds for which the event loop may keep Python's lock from the thread that waits for the disk; Python's own 5 ms are ten fsyncs.
_SWITCH_INTERVAL = 0.0005

#: Seconds between checks whether the parent process still exists.
_PARENT_POLL = 1.0


class IpAddress(click.ParamType[str]):
    """An IP address, as Go's flags of type ip accept it; empty: none."""

    name = "ip"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        try:
            self.check(text)
        except ValueError as fault:
            self.fail(str(fault), param, ctx)
        return text

    def check(self, text: str) -> None:
        """Raises ValueError."""
        if text:
            ipaddress.ip_address(text)


class LoopbackAddress(IpAddress):
    """A loopback IP address."""

    def check(self, text: str) -> None:
        """Raises ValueError."""
        if not ipaddress.ip_address(text).is_loopback:
            raise ValueError(f"{text} can be reached from elsewhere, and kubeloop serves this machine only; use 127.0.0.1")


@click.group(cls=CommandGroup, invoke_without_command=True)
@click.option(
    "--port",
    "--secure-port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default=True,
    help="Port on 127.0.0.1; 0 takes any that is free.",
)
@click.option(
    "--bind-address",
    type=LoopbackAddress(),
    default="127.0.0.1",
    show_default=True,
    help="Address of the loopback interface to listen on; no other is served.",
)
@click.option(
    "--advertise-address",
    type=IpAddress(),
    default="",
    metavar="IP",
    help="Address in the endpoints of the service default/kubernetes. Default: that of --bind-address.",
)
@click.option("--kubeconfig", type=_FILE, help="Where to write an administrator's kubeconfig (mode 0600). Default: a temporary file.")
@click.option("--no-controllers", is_flag=True, help="Do not run the built-in controllers: Deployments get no Pods, and so on.")
@click.option("--service-cluster-ip-range", default="", metavar="CIDR", help="Cluster IPs of services. Default: 10.0.0.0/24.")
@click.option("--service-node-port-range", default="", metavar="PORTS", help="Node ports of services. Default: 30000-32767.")
@authentication_flags
@click.option("--data", type=_FOLDER, help="Keep all objects in this folder, on disk: they outlive the server. Default: in memory.")
@click.option(
    "--unsafe-no-fsync",
    is_flag=True,
    help="With --data: answer a write before it is on disk. It survives the end of the server, not a loss of power.",
)
@click.option(
    "--cert-dir",
    type=_FOLDER,
    help="Keep the certificate authority here (ca.crt, ca.key): kubeconfigs of one run hold for the next. "
    "Default: pki in the folder of --data; without, a new one each time.",
)
@click.option(
    "--history",
    "--etcd-compaction-interval",
    type=DurationParameter(),
    default=300.0,
    show_default=True,
    help="Seconds (or as in 5m) of history that watches and lists can go back to; older versions are answered with 410 Expired.",
)
@click.option(
    "--history-revisions",
    type=click.IntRange(min=0),
    default=0,
    help="Keep only so many of the newest changes, whatever their age; 0: as many as come.",
)
@click.option("--kubelet-client-certificate", type=_FILE, help="Certificate for calls of kubelets (logs, exec ...), PEM.")
@click.option("--kubelet-client-key", type=_FILE, help="Its key, PEM.")
@click.option("--kubelet-certificate-authority", type=_FILE, help="Who signs kubelets' certificates, PEM. Default: they are not verified.")
@click.option(
    "--event-ttl", type=DurationParameter(), default=3600.0, show_default=True, help="Seconds (or as in 1h) that Events are kept."
)
@click.option(
    "--min-request-timeout",
    type=DurationParameter(),
    default=1800.0,
    show_default=True,
    help="Seconds that a watch lasts at least unless it says for how long; at most twice that.",
)
@click.option(
    "--authorization-mode",
    default="Node,RBAC",
    show_default=True,
    metavar="MODES",
    help="Who decides what a user may do, in order: of Node, RBAC, AlwaysAllow, AlwaysDeny.",
)
@admission_options
@operation_options
@click.option(
    "--allow-remote-backends",
    is_flag=True,
    help="Webhooks and servers behind APIServices may be anywhere. Default: on loopback, and requests to others fail.",
)
@click.option(
    "--descriptions",
    default="",
    metavar="FILE|CONTEXT",
    help="Import what kubectl explain shows: an OpenAPI document, or a context of your kubeconfig whose cluster is asked. "
    "Default: what was imported last, else short texts.",
)
@click.option("--verbose", is_flag=True, help="Log more, to stderr.")
@click.option("--exit-with-stdin", is_flag=True, hidden=True, help="End when standard input is closed: for programs that start this one.")
@click.option("--exit-with-parent", is_flag=True, hidden=True, help="End when the program that started this one has ended.")
@click.option("--no-kubeconfig", is_flag=True, hidden=True, help="Write no kubeconfig: for programs that bring their own certificates.")
@click.pass_context
def server(
    context: click.Context,
    port: int,
    bind_address: str,
    advertise_address: str,
    kubeconfig: Path | None,
    no_controllers: bool,
    service_cluster_ip_range: str,
    service_node_port_range: str,
    authentication: AuthenticationFlags,
    data: Path | None,
    unsafe_no_fsync: bool,
    cert_dir: Path | None,
    history: float,
    history_revisions: int,
    event_ttl: float,
    min_request_timeout: float,
    authorization_mode: str,
    kubelet_client_certificate: Path | None,
    kubelet_client_key: Path | None,
    kubelet_certificate_authority: Path | None,
    allow_remote_backends: bool,
    descriptions: str,
    verbose: bool,
    exit_with_stdin: bool,
    exit_with_parent: bool,
    no_kubeconfig: bool,
    operation: OperationSettings,
    admission: AdmissionSettings,
) -> None:
    """Run the embedded Kubernetes API server on 127.0.0.1, over TLS.

    Prints "ready URL kubeconfig=FILE" when its controllers are idle; ends on SIGINT or SIGTERM.
    The subcommands work on a running server or on the data of a stopped one.
    """
    if context.invoked_subcommand is not None:
        _refuse_options(context)
        return
    configure(operation.logging_format, EVERYTHING if verbose else operation.v)
    asyncio.sslproto.SSLProtocol.max_size = _TLS_READ_SIZE
    folder = None
    if kubeconfig is None and not no_kubeconfig:
        folder = tempfile.mkdtemp(prefix="kubeloop-")
        kubeconfig = Path(folder, "kubeconfig")
    kubeconfig = kubeconfig.absolute() if kubeconfig is not None else None
    try:
        settings = _Settings(
            port=port,
            addresses=(bind_address, advertise_address),
            kubeconfig=kubeconfig,
            controllers=not no_controllers,
            services=(service_cluster_ip_range, service_node_port_range),
            authentication=authentication,
            data=data,
            synced=not unsafe_no_fsync,
            cert_dir=cert_dir,
            history=history,
            history_revisions=history_revisions,
            event_ttl=event_ttl,
            min_request_timeout=min_request_timeout,
            authorization_mode=authorization_mode,
            kubelets=(kubelet_client_certificate, kubelet_client_key, kubelet_certificate_authority),
            exit_with_stdin=exit_with_stdin,
            exit_with_parent=exit_with_parent,
            remote_backends=allow_remote_backends,
            descriptions=descriptions,
            operation=operation,
            admission=admission,
        )
        status = asyncio.run(_run(settings))
    except ModuleNotFoundError as error:
        from kubeloop.testing.extras import not_installed

        raise click.ClickException(str(not_installed(error))) from None
    except (KubeloopError, OSError) as error:
        raise click.ClickException(str(error)) from None
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
    sys.exit(status)


server.add_command(compact)
server.add_command(snapshot)


def _refuse_options(context: click.Context) -> None:
    """Refuse options that a subcommand would ignore."""
    for name in context.params:
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            flag = f"--{name.replace('_', '-')}"
            raise click.UsageError(f"{flag} belongs to the server; options of {context.invoked_subcommand} come after its name")


@dataclass(frozen=True, slots=True)
class _Settings:
    """The settings of the command line."""

    port: int
    addresses: tuple[str, str]
    kubeconfig: Path | None
    controllers: bool
    services: tuple[str, str]
    authentication: AuthenticationFlags
    data: Path | None
    synced: bool
    cert_dir: Path | None
    history: float
    history_revisions: int
    event_ttl: float
    min_request_timeout: float
    authorization_mode: str
    kubelets: tuple[Path | None, Path | None, Path | None]
    exit_with_stdin: bool
    exit_with_parent: bool
    remote_backends: bool
    descriptions: str
    operation: OperationSettings
    admission: AdmissionSettings


async def _run(settings: _Settings) -> int:
    ending = _ending(
        settings.exit_with_stdin, os.getppid() if settings.exit_with_parent else 0
    )  # before the imports, which take most of the start: everything made is cleaned up

    from kubeloop.apiserver.builtin.services.ranges import ServiceRanges
    from kubeloop.apiserver.kubeconfig import kubeconfig_text
    from kubeloop.apiserver.kubelet.credentials import KubeletCredentials
    from kubeloop.apiserver.server import ApiServer, ServerOptions
    from kubeloop.cli.kubeconfig_file import writable_target
    from kubeloop.pki.files import kept_authority, write_secret

    services = ServiceRanges.parse(*settings.services)
    kubeconfig = settings.kubeconfig
    target = writable_target(kubeconfig) if kubeconfig is not None else None
    if settings.data:
        try:
            settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as fault:
            raise ConfigError(f"--data {settings.data}: {fault.strerror}; name a folder on a local disk that you may write") from None
    certificates = settings.cert_dir or (settings.data / "pki" if settings.data else None)
    authority = kept_authority(certificates, "kubeloop-ca") if certificates else None
    storage = await _storage(settings.data, synced=settings.synced)
    host, advertised = settings.addresses
    options = ServerOptions(
        port=settings.port,
        host=host,
        advertise=advertised,
        history=settings.history,
        history_revisions=settings.history_revisions,
        event_ttl=settings.event_ttl,
        min_request_timeout=settings.min_request_timeout,
        authorization=tuple(one.strip() for one in settings.authorization_mode.split(",") if one.strip()),
        authority=authority,
        resume=storage is not None,
        remote_backends=settings.remote_backends,
        services=services,
        kubelets=KubeletCredentials(*settings.kubelets),
        authentication=settings.authentication.options(certificates),
        operation=settings.operation.options(),
        admission=settings.admission.options(),
        descriptions=await _descriptions(settings.descriptions),
    )
    api = ApiServer(options, storage)
    try:
        await api.start()
        if target is not None:
            try:
                write_secret(target, kubeconfig_text(api.url, api.authority, api.administrator(), server_name=api.server_name))
            except OSError as fault:
                raise ConfigError(f"cannot write kubeconfig {kubeconfig}: {fault.strerror or fault}") from None
        settled = asyncio.Event()
        controllers = _controllers(api, settled) if settings.controllers else None
        if controllers is None:
            settled.set()
        api.add_readiness("controllers", settled.is_set)
        if await _has_settled(settled, ending, controllers):
            print(f"ready {api.url} kubeconfig={kubeconfig}" if target is not None else f"ready {api.url}", flush=True)
        # Objects made so far live until the end; the collector need not scan them repeatedly.
        gc.freeze()
        gc.set_threshold(20_000, 20, 50)
        return await _until(ending, controllers)
    finally:
        await api.stop()


async def _descriptions(source: str) -> Texts:
    """Import descriptions from ``source``, else load the previously imported ones."""
    from kubeloop.schema.descriptions import cache_file, load

    if source:
        from kubeloop.cli.descriptions import import_descriptions

        return await import_descriptions((source,), None)
    return load(cache_file())


async def _storage(data: Path | None, *, synced: bool) -> Storage | None:
    """Return the storage; None: in memory."""
    if data is None:
        return None
    from kubeloop.apiserver.storage.sqlite import SqliteStorage

    sys.setswitchinterval(_SWITCH_INTERVAL)
    return await SqliteStorage.open(data, synced=synced)


async def _has_settled(settled: asyncio.Event, ending: asyncio.Event, controllers: asyncio.Task[None] | None) -> bool:
    """Wait until the controllers have done their first work; False if the end came first, or the controllers failed."""
    waits = [asyncio.ensure_future(settled.wait()), asyncio.ensure_future(ending.wait())]
    try:
        await asyncio.wait({*waits, *([controllers] if controllers is not None else [])}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end_tasks(*waits)
    return settled.is_set()


async def _until(ending: asyncio.Event, controllers: asyncio.Task[None] | None) -> int:
    """Wait for the end, or for failing controllers; return 0 or 1."""
    waiting = asyncio.ensure_future(ending.wait())
    tasks: set[asyncio.Task[object]] = {waiting}
    if controllers is not None:
        tasks.add(controllers)
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if controllers is None:
        return 0
    failed = controllers.done() and not controllers.cancelled() and controllers.exception()
    if failed:
        _LOG.error("controllers ended: %s", failed)
        return 1
    controllers.cancel()
    await asyncio.wait({controllers})
    return 0


def _controllers(api: ApiServer, settled: asyncio.Event) -> asyncio.Task[None]:
    async def run() -> None:
        # Imported in a thread, so that the loop can respond meanwhile.
        await asyncio.to_thread(importlib.import_module, "kubeloop.controlplane")
        from kubeloop import controlplane
        from kubeloop.config import ClusterConfig, Credentials, Pem

        own = api.controllers()
        credentials = Credentials(client_certificate=Pem(data=own.certificate), client_key=Pem(data=own.key), owner="controllers")
        config = ClusterConfig(
            server=api.url,
            name="kubeloop",
            tls_server_name=api.server_name,
            ca=Pem(data=api.authority),
            credentials=credentials,
            source="kubeloop server",
        )
        keys = controlplane.ClusterKeys(api.signing_authority, api.authentication.accounts.signing)

        def report_health(_: object) -> None:
            for name in ("controller-manager", "scheduler"):
                api.components[name] = str  # nothing is wrong

        try:
            await controlplane.run(
                config, keys=keys, grace=0.0, ready=report_health, settled=settled.set
            )  # their last writes would be lost with the store
        finally:
            api.components.clear()

    return asyncio.create_task(run(), name="controllers")


def _ending(exit_with_stdin: bool, parent: int) -> asyncio.Event:
    """Return an event set by SIGINT, SIGTERM, the end of standard input if requested, or the end of the process ``parent`` (0: none)."""
    ending = asyncio.Event()
    loop = asyncio.get_running_loop()
    for one in (signal.SIGINT, signal.SIGTERM):
        on_signal(one, ending.set)
    if exit_with_stdin:

        def readable() -> None:
            if not os.read(0, 4096):
                loop.remove_reader(0)
                ending.set()

        try:
            loop.add_reader(0, readable)
        except NotImplementedError:  # Windows' loops read sockets only

            def read() -> None:
                while os.read(0, 4096):
                    pass
                loop.call_soon_threadsafe(ending.set)

            threading.Thread(target=read, name="stdin", daemon=True).start()
    if parent > 1:  # process 1 adopts orphans, and does not end

        def poll() -> None:
            if os.getppid() != parent:
                _LOG.warning("the program that started this server (process %d) has ended; ending", parent)
                ending.set()
            else:
                loop.call_later(_PARENT_POLL, poll)

        poll()
    return ending
