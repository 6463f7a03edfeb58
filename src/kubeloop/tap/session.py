"""A whole tap: the listener, the upstream server, the observers, and the command between start and end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kubeloop.meta.errors import ConfigError
from kubeloop.tap.certificates import TapCertificates
from kubeloop.tap.client_config import TapMode, TemporaryKubeconfig, command_environment, is_loopback, load_cluster, through_tap
from kubeloop.tap.command import CommandSignals, check_command, run_command
from kubeloop.tap.conversation import Conversation, ConversationListener
from kubeloop.tap.listener import TapListener
from kubeloop.tap.recorder import HarRecorder, create_private, remove_file
from kubeloop.tap.redaction import redacted_command
from kubeloop.tap.relay import RelayClock
from kubeloop.tap.traffic import TapMessage, TrafficQueue
from kubeloop.tap.upstream import UpstreamServer, UpstreamServers, anonymous
from kubeloop.tasks import Supervisor, close_all
from kubeloop.timing import Clock, SystemClock

_LOG = logging.getLogger("kubeloop.tap")

LOOPBACK_WARNING = (
    "warning: the server {server} is on loopback: Go programs (kubectl, client-go) and kubeloop ignore HTTPS_PROXY for it; "
    "leave out --https-proxy, or use --proxy-url"
)


@dataclass(frozen=True)
class TapOptions:
    """What a tap does.

    ``anonymous``: the upstream connection presents no client certificate. ``trust``: with HTTPS_PROXY, the command's kubeconfig trusts
    the tap's authority. ``overwrite``: the files of ``record`` and ``keylog`` may exist.
    """

    command: Sequence[str]
    kubeconfig: Path | None = None
    context: str | None = None
    mode: TapMode = TapMode.SERVER
    trust: bool = False
    anonymous: bool = False
    record: Path | None = None
    keylog: Path | None = None
    overwrite: bool = False
    show_secrets: bool = False
    port: int = 0


async def run_tap(options: TapOptions, listeners: Sequence[ConversationListener], clock: Clock | None = None) -> int:
    """Run a command through a tap.

    Args:
        options: The command, and what to do.
        listeners: Get the conversation, such as the live view.
        clock: Measures times. None: the system's.

    Returns:
        The exit status of the command; 1 if it succeeded and the recording failed.

    Raises:
        ConfigError: A file, the kubeconfig, the port or the command cannot be used; the command was not started.
        Interrupted: A signal ended the tap before the command started.
    """
    time = RelayClock(clock or SystemClock())
    config, kubeconfig = load_cluster(options.kubeconfig, options.context)
    if options.mode is not TapMode.SERVER and not config.secure:
        raise ConfigError(
            f"{config.source}: server: {config.server} is not https: no CONNECT request leads to it; leave out the proxy option"
        )
    check_command(options.command)
    with CommandSignals() as signals, ExitStack() as files:
        if options.keylog is not None:
            create_private(options.keylog, overwrite=options.overwrite).close()
            files.enter_context(_removed_unless_started(signals, partial(remove_file, options.keylog)))
        upstream = UpstreamServer(anonymous(config) if options.anonymous else config, time.clock, options.keylog)
        upstream.check()
        certificates = TapCertificates(options.keylog)
        destination = upstream if options.mode is TapMode.SERVER else UpstreamServers(upstream, config, time.clock, options.keylog)
        observers = [*listeners]
        recorder, failure = None, ""
        if options.record is not None:
            details = {
                "server": config.server,
                "context": config.context,
                "command": redacted_command(options.command),
                "mode": options.mode.value,
            }
            recorder = HarRecorder(options.record, time.started, details, show_secrets=options.show_secrets, overwrite=options.overwrite)
            files.callback(recorder.close)
            files.enter_context(_removed_unless_started(signals, recorder.discard))
            observers.append(recorder)
        async with Supervisor(time.clock, _LOG) as supervisor:
            queue = TrafficQueue(Conversation(observers), supervisor)
            listener = TapListener(destination, certificates, queue.put, time, port=options.port)
            listener.bind()
            accepting = listener.serve(supervisor)
            try:
                client = _client_config(options, kubeconfig, listener.port, certificates, config.ca.read() if config.ca else b"")
                if client is not None:
                    files.callback(client.remove)
                if options.mode is TapMode.HTTPS_PROXY and is_loopback(config.server):
                    queue.put(TapMessage(time.now(), LOOPBACK_WARNING.format(server=config.server)))
                path = client.path if client is not None else options.kubeconfig
                status = await run_command(options.command, command_environment(options.mode, listener.port, path), signals)
            finally:
                await close_all(accepting.stop, listener.close, queue.close)
        if recorder is not None:
            recorder.close()
            failure = recorder.failure
    if failure:
        for observer in listeners:
            observer.on_message(TapMessage(time.now(), failure))
    return status or int(bool(failure))


@contextmanager
def _removed_unless_started(signals: CommandSignals, remove: Callable[[], None]) -> Iterator[None]:
    """Remove a file of the tap, if the command could not be started: the next attempt would find it and not overwrite it."""
    try:
        yield
    finally:
        if signals.process is None:
            remove()


def _client_config(
    options: TapOptions, kubeconfig: dict[str, object], port: int, certificates: TapCertificates, trusted: bytes
) -> TemporaryKubeconfig | None:
    """Return the temporary kubeconfig of the command, or None if it uses its usual one.

    Args:
        options: What to do.
        kubeconfig: The kubeconfig of the context.
        port: The tap's port.
        certificates: The tap's authority.
        trusted: The cluster's authority, PEM.
    """
    make = partial(through_tap, kubeconfig, options.mode, port, certificates.authority)
    if options.mode is not TapMode.HTTPS_PROXY:
        return TemporaryKubeconfig(make())
    if options.trust:
        return TemporaryKubeconfig(make(trusted=trusted))
    return TemporaryKubeconfig(kubeconfig) if options.context is not None else None
