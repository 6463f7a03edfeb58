"""The credential of a plugin, shared by all users of the same plugin configuration in this process.

A login may ask a person: it happens once, whatever the number of clients, and again when the credential expires or is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from kubeloop.config.cluster import ClusterConfig
from kubeloop.config.credentials import ExecPlugin
from kubeloop.config.plugins.credential import ExecCredential, cluster_info, exec_info, read_credential
from kubeloop.config.plugins.metrics import NO_STATUS, figures
from kubeloop.meta.errors import ConfigError
from kubeloop.timing import Clock

#: Maximum bytes of output. An ExecCredential is a token or two PEM files.
MOST_OUTPUT = 1 << 20
_KEPT_STDERR = 2048
_LAST_WORDS = 2.0


class Ended(NamedTuple):
    """The result of a plugin run. ``complaint`` is the end of stderr, without control characters."""

    status: int
    output: bytes
    complaint: str


class TooMuchOutputError(Exception):
    """The program printed more than ``MOST_OUTPUT``."""


async def run(command: str, args: Sequence[str], environment: Mapping[str, str], *, interactive: bool, timeout: float) -> Ended:
    """Run a program until it exits. Its stderr is shown as it arrives.

    It inherits this process's stdin and stderr if ``interactive``; otherwise its stdin is empty.

    Args:
        command: The program.
        args: Its arguments.
        environment: Its environment variables.
        interactive: Whether it may use the terminal.
        timeout: Maximum seconds of its run.

    Returns:
        The exit status, the stdout, and the end of stderr (empty if ``interactive``).

    Raises:
        OSError: The program cannot be started.
        TimeoutError, TooMuchOutputError: The program was killed.
    """
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.subprocess_exec(
        lambda: _Output(loop),
        command,
        *args,
        stdin=None if interactive else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        # An interactive program needs the terminal's input.
        stderr=None if interactive else asyncio.subprocess.PIPE,
        env=dict(environment),
    )
    try:
        async with asyncio.timeout(timeout):
            await protocol.ended
        if transport.get_returncode():
            # The last output of the program is on its way; a child that inherited the program's stderr may never close it.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LAST_WORDS):
                    await protocol.silent
    finally:
        # Kills the program if it still runs, and closes the pipes, which a remaining child may never close.
        transport.close()
        await asyncio.shield(protocol.gone)
    if protocol.excess:
        raise TooMuchOutputError
    status = transport.get_returncode()
    return Ended(
        status if status is not None else -1, bytes(protocol.output), _printable(bytes(protocol.complaint).decode("utf-8", "replace"))
    )


class _Output(asyncio.SubprocessProtocol):
    """The output of a plugin process.

    ``ended`` is set when the process has exited and closed its stdout, ``silent`` when its stderr is closed, and ``gone`` when the process
    and all its pipes are closed.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.ended: asyncio.Future[None] = loop.create_future()
        self.silent: asyncio.Future[None] = loop.create_future()
        self.gone: asyncio.Future[None] = loop.create_future()
        self.output = bytearray()
        self.complaint = bytearray()
        self.excess = False
        self._exited = False
        self._closed = False

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self.complaint = (self.complaint + data)[-_KEPT_STDERR:]
            with contextlib.suppress(OSError, ValueError, AttributeError):  # no stderr, or a closed one
                sys.stderr.write(data.decode("utf-8", "replace"))
                sys.stderr.flush()
            return
        self.output += data
        if len(self.output) > MOST_OUTPUT:
            self.excess = True
            self._end()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        if fd == 2:
            _set(self.silent)
            return
        self._closed = True
        if self._exited:
            self._end()

    def process_exited(self) -> None:
        self._exited = True
        if self._closed:
            self._end()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._end()
        _set(self.silent)
        _set(self.gone)

    def _end(self) -> None:
        _set(self.ended)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _printable(text: str) -> str:
    return "".join(one if one.isprintable() else " " for one in text).strip()


#: Minimum timeout in seconds of an interactive plugin.
INTERACTIVE_TIMEOUT = 900.0
#: Source: client-go plugin/pkg/client/auth/exec/exec.go: an install hint at most 10 times an hour.
_HINTS, _HINT_WINDOW = 10, 3600.0
_MOST_SOURCES = 64
#: Seconds for which a new credential is used even if it has expired already.
_SHORTEST_LIFE = 1.0


class PluginSource:
    """Runs one plugin when a credential is needed and none is cached; one run at a time per event loop."""

    def __init__(self) -> None:
        self._credential: ExecCredential | None = None
        self._obtained = 0.0
        self._chain: bytes | None = None
        self._runs = 0
        self._failure = ""
        # A lock belongs to an event loop; the credential belongs to the process.
        self._running: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
        self._hints: list[float] = []

    async def credential(self, plugin: ExecPlugin, config: ClusterConfig, clock: Clock) -> ExecCredential:
        """Return the cached credential if it has not expired, or else run the plugin for a new one.

        Raises:
            ConfigError: The plugin must not run, is not installed, failed, timed out, or printed something else.
        """
        if (kept := self._usable(clock)) is not None:
            return kept
        runs = self._runs
        async with self._running.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            # Waiters for the lock take the result of its holder: a credential, or the reason why there is none.
            if (kept := self._usable(clock)) is not None:
                return kept
            if runs != self._runs and self._failure:
                raise ConfigError(self._failure)
            try:
                made = await self._run(plugin, config, clock)
            except ConfigError as error:
                self._runs, self._failure = self._runs + 1, str(error)
                raise
            chain = made.certificate[0] if made.certificate is not None else None
            if chain != self._chain:
                self._chain = chain
                figures.certificate(self, chain, clock.wall())
            self._credential, self._obtained = made, clock.now()
            self._runs, self._failure = self._runs + 1, ""
            return made

    def refused(self, credential: ExecCredential, started: float | None) -> None:
        """Handle a 401 for a request that was sent at ``started`` with this credential. The credential is not used again."""
        kept = self._credential
        if kept is None or kept != credential or (started is not None and self._obtained > started):
            return  # renewed meanwhile
        self._credential = None

    def _usable(self, clock: Clock) -> ExecCredential | None:
        kept = self._credential
        if kept is None or not kept.expired(clock.wall()):
            return kept
        # A credential that is expired on arrival (clocks differ) must not run the plugin for each request: the server decides.
        return kept if clock.now() - self._obtained < _SHORTEST_LIFE else None

    async def _run(self, plugin: ExecPlugin, config: ClusterConfig, clock: Clock) -> ExecCredential:
        at = f"{plugin.owner}: exec: {plugin.command}"
        interactive = plugin.interactive != "Never" and _has_terminal()
        if plugin.interactive == "Always" and not interactive:
            raise ConfigError(f"{at}: interactiveMode is Always, and there is no terminal here; run it once at a terminal")
        try:
            plugin.policy.check(plugin.command, plugin.owner)
        except ConfigError:
            figures.policy["denied"] += 1
            raise
        figures.policy["allowed"] += 1
        info = exec_info(plugin, config, interactive=interactive).decode()
        environment = {**os.environ, **dict(plugin.env), "KUBERNETES_EXEC_INFO": info}
        seconds = max(plugin.timeout, INTERACTIVE_TIMEOUT) if interactive else plugin.timeout
        try:
            ended = await run(plugin.command, plugin.args, environment, interactive=interactive, timeout=seconds)
        except TimeoutError as error:
            figures.calls[NO_STATUS, "client_internal_error"] += 1
            raise ConfigError(f"{at}: did not end within {seconds:g} s and was killed; run it by hand to see what it waits for") from error
        except TooMuchOutputError as error:
            figures.calls[NO_STATUS, "client_internal_error"] += 1
            raise ConfigError(
                f"{at}: printed more than {MOST_OUTPUT >> 20} MiB; it must print an ExecCredential and nothing else"
            ) from error
        except (OSError, ValueError) as error:
            figures.calls[NO_STATUS, "plugin_not_found_error"] += 1
            fault = getattr(error, "strerror", None) or str(error)
            raise ConfigError(f"{at}: cannot be run ({fault}){self._hint(plugin, clock)}") from error
        figures.calls[ended.status, "plugin_execution_error" if ended.status else "no_error"] += 1
        if ended.status:
            said = f': it said "{ended.complaint}"' if ended.complaint else "; run it by hand to see why"
            raise ConfigError(f"{at}: ended with exit status {ended.status}{said}")
        return read_credential(ended.output, plugin, at)

    def _hint(self, plugin: ExecPlugin, clock: Clock) -> str:
        now = clock.now()
        self._hints = [at for at in self._hints if now - at < _HINT_WINDOW]
        if not plugin.install_hint or len(self._hints) >= _HINTS:
            return "; install it or correct exec.command"
        self._hints.append(now)
        return f"\n{printable(plugin.install_hint)}"


_sources: OrderedDict[bytes, PluginSource] = OrderedDict()


def source_of(plugin: ExecPlugin, config: ClusterConfig) -> PluginSource:
    """Return the ``PluginSource`` of a plugin: the same for the same command, arguments, environment and cluster information."""
    told = cluster_info(plugin, config) if plugin.provide_cluster_info else None
    key = msgspec.msgpack.encode(
        (plugin.command, plugin.args, plugin.env, plugin.api_version, plugin.interactive, plugin.provide_cluster_info, told)
    )
    source = _sources.get(key)
    if source is None:
        source = _sources[key] = PluginSource()
        while len(_sources) > _MOST_SOURCES:
            _sources.popitem(last=False)
    _sources.move_to_end(key)
    return source


def printable(text: str) -> str:
    """Replace control characters by text such as ``U+001B``, because a hint from a file must not control the terminal.

    Tabs and line breaks stay.

    Source: client-go tools/clientcmd/client_config.go, cleanANSIEscapeCodes.
    """
    return "".join(one if one.isprintable() or one in "\t\n\v\f\r" else f"U+{ord(one):04X}" for one in text)


def _has_terminal() -> bool:
    try:
        return sys.stdin is not None and sys.stdin.isatty()
    except ValueError:  # closed
        return False
