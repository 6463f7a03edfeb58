"""``kubeloop server``: the embedded API server with its controllers, as a command."""

from __future__ import annotations

import asyncio
import gc
import importlib
import logging
import os
import shutil
import sys
import tempfile
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubeloop.cli.flags import with_flags
from kubeloop.cli.group import CommandGroup
from kubeloop.cli.kubelet import ProcessPods, check_system, node_config, server_credentials
from kubeloop.cli.long_running import refuse_options, shutdown_event, writable_target
from kubeloop.cli.server_commands import compact, snapshot
from kubeloop.cli.server_flags import AdmissionFlags, AuthenticationFlags, OperationFlags, ServerFlags
from kubeloop.cli.server_logging import ELECTION, EVERYTHING, configure
from kubeloop.meta.errors import ConfigError, KubeloopError
from kubeloop.tasks import end_tasks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kubeloop.apiserver.admission.plugins import AdmissionOptions
    from kubeloop.apiserver.server import ApiServer
    from kubeloop.apiserver.storage import Storage
    from kubeloop.controlplane.scheduling.configuration import SchedulerConfiguration
    from kubeloop.controlplane.simulation.node_templates import NodeTemplate
    from kubeloop.controlplane.simulation.rules import SimulationRules
    from kubeloop.schema.descriptions import Texts

_LOG = logging.getLogger("kubeloop.cli.server")

#: Seconds for which the event loop may keep Python's lock from the thread that waits for the disk; Python's own 5 ms are ten fsyncs.
_SWITCH_INTERVAL = 0.0005


@click.group(cls=CommandGroup, invoke_without_command=True)
@with_flags(flags=ServerFlags, authentication=AuthenticationFlags, admission=AdmissionFlags, operation=OperationFlags)
@click.pass_context
def server(
    context: click.Context,
    flags: ServerFlags,
    authentication: AuthenticationFlags,
    admission: AdmissionFlags,
    operation: OperationFlags,
) -> None:
    """Run the embedded Kubernetes API server on 127.0.0.1, over TLS.

    Prints "ready URL kubeconfig=FILE" when its controllers are idle; ends on SIGINT or SIGTERM.
    The subcommands work on a running server or on the data of a stopped one.
    """
    if context.invoked_subcommand is not None:
        refuse_options(context, "server")
        return
    verbosity = EVERYTHING if flags.verbose else operation.v
    configure(operation.logging_format, verbosity)
    if verbosity < EVERYTHING:
        logging.getLogger(ELECTION).setLevel(logging.WARNING)
    folder = None
    kubeconfig = flags.kubeconfig
    if kubeconfig is None and not flags.no_kubeconfig:
        folder = tempfile.mkdtemp(prefix="kubeloop-")
        kubeconfig = Path(folder, "kubeconfig")
    try:
        status = asyncio.run(_run(flags, authentication, admission, operation, kubeconfig.absolute() if kubeconfig is not None else None))
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
server.add_command(node_config)
server.add_command(snapshot)


async def _run(
    flags: ServerFlags,
    authentication: AuthenticationFlags,
    admission: AdmissionFlags,
    operation: OperationFlags,
    kubeconfig: Path | None,
) -> int:
    # Before the imports, which take most of the start, so that a signal during them leaves nothing behind.
    ending = shutdown_event(exit_with_stdin=flags.exit_with_stdin, parent=os.getppid() if flags.exit_with_parent else 0)

    from kubeloop.apiserver.builtin.services.ranges import ServiceRanges
    from kubeloop.apiserver.handlers.kubelet.credentials import KubeletCredentials
    from kubeloop.apiserver.server import ApiServer, ServerOptions
    from kubeloop.config.kubeconfig.generated import kubeconfig_text
    from kubeloop.pki import CertificateAuthority
    from kubeloop.pki.files import load_or_create_authority, write_secret

    if flags.controllers != "*":
        from kubeloop.controlplane import select_controllers

        select_controllers(flags.controllers)
    scheduler = None
    if flags.scheduler_config is not None:
        from kubeloop.cli.controlplane import read_scheduler_configuration

        scheduler = read_scheduler_configuration(flags.scheduler_config)
    if flags.data:
        try:
            flags.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as fault:
            raise ConfigError(f"--data {flags.data}: {fault.strerror}; name a folder on a local disk that you may write") from None
    pods = _process_pods(flags)
    nodes, rules = _simulation(flags) if pods is None else ((), None)
    cluster_ips = flags.service_cluster_ip_range
    services = ServiceRanges.parse(pods.claim_service_range(cluster_ips) if pods else cluster_ips, flags.service_node_port_range)
    target = writable_target(kubeconfig) if kubeconfig is not None else None
    certificates = flags.cert_dir or (flags.data / "pki" if flags.data else None)
    authority = load_or_create_authority(certificates, "kubeloop-ca") if certificates else None
    kubelets = KubeletCredentials(flags.kubelet_client_certificate, flags.kubelet_client_key, flags.kubelet_certificate_authority)
    # Only with the kubelets' authority: OpenSSL presents a certificate also to a server that names other authorities, and that refuses it.
    if certificates and authority and kubelets.authority and pods is None and kubelets.certificate is kubelets.key is None:
        kubelets = replace(server_credentials(authority, certificates), authority=kubelets.authority)
    async with AsyncExitStack() as stack:
        if pods is not None:
            stack.callback(pods.clean_up)
            authority = authority or CertificateAuthority.create("kubeloop-ca")
            if kubelets.certificate is None:
                kubelets = pods.server_credentials(authority)
        storage = await _storage(flags.data, synced=not flags.unsafe_no_fsync)
        if storage is not None:
            stack.push_async_callback(storage.close)
        options = ServerOptions(
            port=flags.port,
            host=flags.bind_address,
            advertise=flags.advertise_address,
            history=flags.history,
            history_revisions=flags.history_revisions,
            event_ttl=flags.event_ttl,
            min_request_timeout=flags.min_request_timeout,
            authorization=tuple(one.strip() for one in flags.authorization_mode.split(",") if one.strip()),
            authority=authority,
            resume=storage is not None,
            loopback_endpoints=pods is not None or flags.allow_loopback_endpoints,
            remote_backends=flags.allow_remote_backends,
            services=services,
            kubelets=kubelets,
            authentication=authentication.options(certificates),
            operation=operation.options(),
            admission=_admission(admission, pods),
            descriptions=await _descriptions(flags.descriptions),
        )
        api = ApiServer(options, storage)
        stack.push_async_callback(api.stop)
        await api.start()
        if target is not None:
            try:
                write_secret(target, kubeconfig_text(api.url, api.authority, api.administrator(), server_name=api.server_name))
            except OSError as fault:
                raise ConfigError(f"cannot write kubeconfig {kubeconfig}: {fault.strerror or fault}") from None
        settled = asyncio.Event()
        controllers = None
        # Simulated nodes are no controllers: --no-controllers with --nodes runs them alone, for another control plane.
        if not flags.no_controllers or flags.nodes != "1" or flags.simulation is not None:
            controllers = _controllers(api, flags, settled, nodes, rules, pods, scheduler)
        if controllers is None:
            settled.set()
        else:
            stack.push_async_callback(_end_controllers, controllers)
        api.add_readiness("controllers", settled.is_set)
        if await _has_settled(settled, ending, controllers):
            print(f"ready {api.url} kubeconfig={kubeconfig}" if target is not None else f"ready {api.url}", flush=True)
        # Objects made so far live until the end; the collector need not scan them repeatedly.
        gc.freeze()
        gc.set_threshold(20_000, 20, 50)
        return await _until(ending, controllers)


async def _end_controllers(controllers: asyncio.Task[None]) -> None:
    if not controllers.done():
        await end_tasks(controllers, logger=_LOG)


async def _descriptions(source: str) -> Texts:
    """Import descriptions from ``source``, else load the previously imported ones."""
    from kubeloop.schema.descriptions import cache_file, load

    if source:
        from kubeloop.cli.server_commands import import_descriptions

        return await import_descriptions((source,), None)
    return load(cache_file())


async def _storage(data: Path | None, *, synced: bool) -> Storage | None:
    """Open the storage of ``--data``; None for storage in memory."""
    if data is None:
        return None
    from kubeloop.apiserver.storage.sqlite import SqliteStorage

    sys.setswitchinterval(_SWITCH_INTERVAL)
    return await SqliteStorage.open(data, synced=synced)


async def _has_settled(settled: asyncio.Event, ending: asyncio.Event, controllers: asyncio.Task[None] | None) -> bool:
    """Wait until the controllers have done their first work. Return False if the server must end first, or the controllers failed."""
    waits = [asyncio.ensure_future(settled.wait()), asyncio.ensure_future(ending.wait())]
    try:
        await asyncio.wait({*waits, *([controllers] if controllers is not None else [])}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end_tasks(*waits)
    return settled.is_set()


async def _until(ending: asyncio.Event, controllers: asyncio.Task[None] | None) -> int:
    """Wait until the server must end or the controllers fail. Return the exit status: 1 if the controllers failed."""
    waiting = asyncio.ensure_future(ending.wait())
    tasks: set[asyncio.Task[object]] = {waiting}
    if controllers is not None:
        tasks.add(controllers)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end_tasks(waiting)
    failed = controllers is not None and controllers.done() and not controllers.cancelled() and controllers.exception()
    if failed:
        _LOG.error("controllers ended: %s", failed)
        return 1
    return 0


def _process_pods(flags: ServerFlags) -> ProcessPods | None:
    """Return the kubelet of ``--pods process``; None for simulated pods."""
    if flags.pods != "process":
        if flags.image_map is not None:
            raise ConfigError("--image-map belongs to --pods process")
        return None
    if flags.no_controllers:
        raise ConfigError("--pods process needs the controllers, which sign the node's certificates; leave out --no-controllers")
    check_system()
    pods = ProcessPods(flags.image_map, (flags.data / "kubelet").absolute() if flags.data else None)
    pods.check()
    return pods


def _admission(flags: AdmissionFlags, pods: ProcessPods | None) -> AdmissionOptions:
    """Return the admission plug-ins. With process pods they include NodeRestriction, unless it is disabled: a node changes only itself."""
    options = flags.options()
    if pods is None or "NodeRestriction" in (*options.enable, *options.disable):
        return options
    return replace(options, enable=(*options.enable, "NodeRestriction"))


def _simulation(flags: ServerFlags) -> tuple[Sequence[str | NodeTemplate], SimulationRules | None]:
    """Return the simulated nodes, and the rules of the simulation file.

    Raises:
        ConfigError: The name of a node, or the file, is invalid.
    """
    if flags.simulation is None and flags.nodes == "1":
        return ("kubeloop-node",), None
    from kubeloop.controlplane.simulation.node_templates import node_names
    from kubeloop.controlplane.simulation.rules import SimulationRules

    rules = SimulationRules.read(flags.simulation) if flags.simulation is not None else None
    if rules is not None and rules.nodes is not None:
        return rules.nodes, rules
    return node_names(flags.nodes), rules


def _controllers(
    api: ApiServer,
    flags: ServerFlags,
    settled: asyncio.Event,
    nodes: Sequence[str | NodeTemplate],
    rules: SimulationRules | None,
    pods: ProcessPods | None,
    scheduler: SchedulerConfiguration | None,
) -> asyncio.Task[None]:
    """Start the controllers and the simulated nodes, or the kubelet of process pods, and return their task."""

    async def run() -> None:
        # Imported in a thread, so that the loop can respond meanwhile.
        await asyncio.to_thread(importlib.import_module, "kubeloop.controlplane")
        from kubeloop import controlplane
        from kubeloop.apiserver.server import CONTROLLERS
        from kubeloop.client import Client
        from kubeloop.config import ClusterConfig, Pem
        from kubeloop.controller.election import LeaseLost
        from kubeloop.controlplane.leader_election import other_holders, server_leases
        from kubeloop.endpoints.access import MASTERS
        from kubeloop.transport import Transport
        from kubeloop.transport.in_process import InProcessSender

        def sender() -> InProcessSender:
            # Without TLS and HTTP the start of the controllers takes half of the CPU time (docs/performance.md).
            return InProcessSender(lambda: api.handler, CONTROLLERS, (MASTERS,))

        config = ClusterConfig(
            server=api.url,
            name="kubeloop",
            tls_server_name=api.server_name,
            ca=Pem(data=api.authority),
            source="kubeloop server",
        )
        keys = controlplane.ClusterKeys(api.signing_authority, api.authentication.accounts.signing)

        def report_health(_: object) -> None:
            for name in ("controller-manager", "scheduler"):
                api.components[name] = str  # nothing is wrong

        works = settled if pods is None else asyncio.Event()

        async def run_controllers() -> None:
            leases = None
            if flags.leader_elect and not flags.no_controllers:
                async with Client(Transport(config, sender=sender())) as client:
                    leases = await server_leases(client)
                    for lease, holder in (await other_holders(client, leases)).items():
                        _LOG.info("waiting for the Lease %s, which %s holds", lease, holder)
            while True:
                try:
                    # No grace: the objects that controllers would still write end with the server.
                    await controlplane.run(
                        config,
                        sender=sender(),
                        keys=keys,
                        nodes=nodes,
                        rules=rules,
                        metrics=flags.metrics,
                        selection=None if flags.no_controllers else flags.controllers,
                        scheduler=scheduler,
                        leases=leases,
                        grace=0.0,
                        ready=report_health,
                        settled=works.set,
                    )
                except LeaseLost:
                    # Upstream's programs end, and are started again. A process that was stopped for 10 s has lost its Leases, too.
                    _LOG.warning("the controllers start again, and wait for their Leases")
                else:
                    return

        tasks = [asyncio.create_task(run_controllers(), name="built-in-controllers")]
        if pods is not None:
            tasks.append(asyncio.create_task(pods.run(api, works, settled), name="kubelet"))
        try:
            while tasks:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                    tasks.remove(task)
        finally:
            api.components.clear()
            await end_tasks(*tasks)

    return asyncio.create_task(run(), name="controllers")
