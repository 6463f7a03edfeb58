"""An NGINX process with a folder for its files: starts it, reloads it, restarts it after a crash, and ends it.

The text of nginx.conf comes from a renderer. It must have a status server on ``STATUS_SOCKET`` that answers ``/configuration-id`` with
``CONFIGURATION_ID`` (conf_file.py writes both), so that ``apply`` returns when the new configuration serves.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import re
import secrets
import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path

from examples.ingress_nginx.nginx.binary import NginxBinary, run
from examples.ingress_nginx.nginx.server import ConfigurationRefused, NginxError
from examples.ingress_nginx.nginx.status_client import StatusClient

#: Replaced by a new identifier each time that a configuration is applied.
CONFIGURATION_ID = "kubeloop-configuration-id"
#: The socket of the status server, relative to the folder, which is NGINX's working directory.
STATUS_SOCKET = "status.sock"

#: Bytes of a log of NGINX, of which one older file is kept.
LOG_LIMIT = 16 << 20

_logger = logging.getLogger(__name__)


class NginxProcess:
    """Runs NGINX in the foreground in a process group, in a private folder.

    Guarantees:
        nginx.conf in the folder is always a file that NGINX has accepted; a refused configuration changes nothing that serves.
        When ``start`` or ``apply`` returns, each new connection gets the new configuration.
        A master that dies is restarted with the last good configuration, after 0.1 s, then twice as long each time, up to 10 s.

    Args:
        binary: The program.
        folder: For nginx.conf, certificates, temporary files and logs. It is created with mode 0700.
        test_timeout: Seconds for ``nginx -t``.
        reload_timeout: Seconds until a new configuration must serve.
    """

    def __init__(self, binary: NginxBinary, folder: Path, *, test_timeout: float = 60, reload_timeout: float = 30) -> None:
        self.binary = binary
        self.folder = folder.absolute()
        self.status = StatusClient(self.folder / STATUS_SOCKET)
        #: How often the master was started again after it had died.
        self.restarts = 0
        #: Called after each of these starts, for data that NGINX had in memory.
        self.after_restart: Callable[[], Awaitable[None]] | None = None
        self._test_timeout = test_timeout
        self._reload_timeout = reload_timeout
        self._process: asyncio.subprocess.Process | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._files: set[str] = set()
        self._identifier = ""
        self._installed = b""
        self._rotation: asyncio.Task[None] | None = None
        self._stopping = False
        #: Held while nginx.conf and the master change together.
        self._lock = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        """The master's process id, or None if it does not run."""
        return None if self._process is None or self._process.returncode is not None else self._process.pid

    async def start(self, text: str, files: Mapping[str, bytes]) -> None:
        """Write and test the configuration, and start NGINX. ``text`` and ``files`` as for ``apply``. Raises NginxError."""
        self._stopping = False
        with self._disk():
            for name in ("", "temp", "tls", "auth"):
                (self.folder / name).mkdir(mode=0o700, parents=not name, exist_ok=True)
        self._files = self._present_files()
        await self._end_orphans()
        await self._install(text, files)
        try:
            await self._spawn()
        except BaseException:
            await self._kill()
            raise
        self._collect(files)
        self._supervisor = asyncio.create_task(self._supervise(), name="nginx-supervisor")
        self._rotation = asyncio.create_task(self._rotate_logs(), name="nginx-logs")

    async def apply(self, text: str, files: Mapping[str, bytes]) -> None:
        """Test the configuration, install it, and reload NGINX with it.

        Args:
            text: nginx.conf with ``CONFIGURATION_ID`` in its status server.
            files: Contents by name relative to the folder. A name holds a digest of the content: a file is written once and never
                changed, so that the last good configuration finds its files after a later one was refused.

        Raises:
            ConfigurationRefused: ``nginx -t`` refuses it.
            NginxError: The disk is full, or NGINX does not load it.
        """
        async with self._lock:
            # Programs that clean temporary folders delete files that were not read for long.
            self._files &= self._present_files()
            old = self._installed
            identifier = self._identifier
            await self._install(text, files)
            try:
                await self._reload()
            except BaseException:
                with contextlib.suppress(NginxError):
                    self._write("nginx.conf", old)
                self._installed = old
                self._identifier = identifier
                raise
            self._collect(files)

    async def healthy(self) -> None:
        """Raise NginxError unless the master runs and a worker answers."""
        if self.pid is None:
            raise NginxError(f"NGINX does not run; {self.folder / 'error.log'} says why")
        await self.status.get("/configuration-id")

    async def stop(self, timeout: float = 240) -> None:
        """Let NGINX finish the requests in progress, for at most ``timeout`` seconds, and end it."""
        self._stopping = True
        process, pid = self._process, self.pid
        if process is not None and pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGQUIT)
            try:
                await asyncio.wait_for(process.wait(), timeout)
            except TimeoutError:
                _logger.warning("NGINX has requests after %g seconds; they are cut off", timeout)
        tasks = [task for task in (self._supervisor, self._rotation) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._supervisor = self._rotation = None
        await self._kill()

    # -- files

    def _write(self, name: str, content: bytes) -> None:
        path = self.folder / name
        new = path.with_name(path.name + ".new")
        with self._disk():
            try:
                with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                    file.write(content)
                new.replace(path)
            except BaseException:
                new.unlink(missing_ok=True)
                raise

    @contextlib.contextmanager
    def _disk(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            advice = "; free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
            raise NginxError(f"cannot write to {self.folder}: {error.strerror}{advice}; the last configuration keeps serving") from error

    async def _install(self, text: str, files: Mapping[str, bytes]) -> None:
        """Write the files, test the configuration, and make it nginx.conf."""
        for name in ("tls", "auth", "temp"):
            with self._disk():
                (self.folder / name).mkdir(mode=0o700, exist_ok=True)
        for name, content in files.items():
            if name not in self._files:
                self._write(name, content)
                self._files.add(name)
        identifier = secrets.token_hex(8)
        content = text.replace(CONFIGURATION_ID, identifier).encode()
        self._write("candidate.conf", content)
        arguments = ("-t", "-q", "-p", f"{self.folder}/", "-c", str(self.folder / "candidate.conf"), "-e", "stderr")
        status, output = await run(self.binary.path, *arguments, folder=self.folder, timeout=self._test_timeout)
        if status:
            raise ConfigurationRefused(f"nginx -t refuses the configuration; the last one keeps serving: {output.strip()[:2000]}")
        with self._disk():
            (self.folder / "candidate.conf").replace(self.folder / "nginx.conf")
        self._identifier, self._installed = identifier, content

    async def _rotate_logs(self) -> None:
        while True:
            await asyncio.sleep(30)
            self.rotate_logs()

    def rotate_logs(self, limit: int = LOG_LIMIT) -> None:
        """Rename logs of more than ``limit`` bytes to ``*.log.1``, and let NGINX open new ones. The folder may be in memory."""
        renamed = False
        for name in ("error.log", "access.log"):
            path = self.folder / name
            try:
                if path.stat().st_size > limit:
                    path.replace(path.with_name(f"{name}.1"))
                    renamed = True
            except FileNotFoundError:
                continue
            except OSError as error:
                _logger.warning("%s cannot be rotated: %s", path, error.strerror)
        if renamed and (pid := self.pid) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR1)

    def _present_files(self) -> set[str]:
        folders = [self.folder / part for part in ("tls", "auth")]
        return {str(file.relative_to(self.folder)) for folder in folders if folder.is_dir() for file in folder.iterdir()}

    def _collect(self, files: Mapping[str, bytes]) -> None:
        """Delete the files that the configuration does not use."""
        for name in self._files - files.keys():
            (self.folder / name).unlink(missing_ok=True)
        self._files &= files.keys()

    # -- processes

    async def _spawn(self) -> None:
        # A socket that a killed master has left stands in the way of the next one.
        with self._disk():
            (self.folder / STATUS_SOCKET).unlink(missing_ok=True)
            if not (self.folder / "nginx.conf").exists():
                self._write("nginx.conf", self._installed)
        log = ErrorLog(self.folder / "error.log")
        try:
            self._process = await asyncio.create_subprocess_exec(
                *(str(self.binary.path), "-p", f"{self.folder}/", "-c", str(self.folder / "nginx.conf"), "-e", "error.log"),
                cwd=self.folder,
                # Ctrl-C at a terminal then reaches the controller only, which ends NGINX in an orderly way.
                process_group=0,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
            )
        except OSError as error:
            raise NginxError(f"cannot start {self.binary.path}: {error.strerror}") from error
        with contextlib.suppress(OSError):
            (self.folder / "master.pid").write_text(str(self._process.pid))
        await self._wait_served(log, "start")

    async def _reload(self) -> None:
        pid = self.pid
        if pid is None:
            raise NginxError("NGINX does not run; it is being restarted with the last configuration")
        log = ErrorLog(self.folder / "error.log")
        old = _workers(pid)
        os.kill(pid, signal.SIGHUP)
        await self._wait_served(log, "reload")
        # The master lets the old workers accept connections for a moment after the new ones have started.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._reload_timeout):
                while any(_accepts(worker) for worker in old):  # noqa: ASYNC110  (a worker is no child of this process)
                    await asyncio.sleep(0.01)

    async def _wait_served(self, log: ErrorLog, action: str) -> None:
        """Wait until a worker serves the configuration with the current identifier."""
        began = asyncio.get_running_loop().time()
        master = self._process.pid if self._process is not None else 0
        try:
            async with asyncio.timeout(self._reload_timeout):
                while True:
                    with contextlib.suppress(NginxError):
                        if await self.status.get("/configuration-id") == self._identifier.encode():
                            return
                    errors = log.emergencies(master)
                    if self.pid is None or (errors and action == "reload"):
                        raise NginxError(f"NGINX does not {action}: {errors or 'it ended without a message'}")
                    # A large configuration takes a second: the wait ends at most a tenth later, and costs 30 questions, not 100.
                    await asyncio.sleep(max(0.01, 0.1 * (asyncio.get_running_loop().time() - began)))
        except TimeoutError:
            reason = log.emergencies(master) or "no message"
            raise NginxError(f"NGINX does not {action} within {self._reload_timeout:g} seconds: {reason}") from None

    async def _supervise(self) -> None:
        delay = 0.1
        while self._process is not None:
            started = asyncio.get_running_loop().time()
            status = await self._process.wait()
            if self._stopping:
                return
            if asyncio.get_running_loop().time() - started > 60:
                delay = 0.1
            _logger.error("NGINX's master ended with status %d; it is started again in %g seconds", status, delay)
            await asyncio.sleep(delay)
            delay = min(delay * 2, 10)
            try:
                async with self._lock:
                    # Workers outlive a killed master and would keep its ports.
                    _signal_group(self._process.pid, signal.SIGQUIT)
                    await self._spawn()
            except (NginxError, OSError) as error:
                _logger.error("%s", error)  # noqa: TRY400
                _signal_group(self._process.pid, signal.SIGKILL)
                continue
            self.restarts += 1
            _logger.warning("NGINX runs again with process id %d", self._process.pid)
            if self.after_restart is not None:
                await self.after_restart()

    async def _kill(self) -> None:
        if self._process is not None:
            _signal_group(self._process.pid, signal.SIGKILL)
            await self._process.wait()
        with contextlib.suppress(OSError):
            (self.folder / STATUS_SOCKET).unlink(missing_ok=True)
            (self.folder / "master.pid").unlink(missing_ok=True)

    async def _end_orphans(self) -> None:
        """End an NGINX that an earlier controller, which was killed, has left in this folder."""
        with contextlib.suppress(OSError, ValueError):
            pid = int((self.folder / "master.pid").read_text())
            if str(self.folder) in _command_line(pid):
                _logger.warning("an NGINX of an earlier controller runs in %s with process id %d; it is ended", self.folder, pid)
                _signal_group(pid, signal.SIGTERM)
                while _command_line(pid):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)


class ErrorLog:
    """Reads the messages that NGINX appends to its error log from now on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = path.stat().st_size if path.exists() else 0

    def emergencies(self, master: int) -> str:
        """Return the master's messages of level emerg and alert since this object was made, once NGINX has given up.

        ``master``: its process id.
        """
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                text = file.read(65536).decode(errors="replace")
        except OSError:
            return ""
        # The line of the master only: those of workers, behind "*" and the number of a connection, quote what clients send.
        found = re.findall(rf"^\d{{4}}/\d\d/\d\d [\d:]+ \[(?:emerg|alert)\] {master}#\d+: (?!\*|worker process)(.*)", text, re.MULTILINE)
        # NGINX tries five times to bind a port. It may succeed after the first message, and then serves the new configuration.
        if found and all(message.startswith("bind()") for message in found):
            return ""
        return "; ".join(list(dict.fromkeys(found))[:5])


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _workers(master: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(pid) for pid in Path(f"/proc/{master}/task/{master}/children").read_text().split()]
    return []


def _command_line(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def _accepts(worker: int) -> bool:
    """Report whether a worker process may accept connections."""
    line = _command_line(worker)
    if "worker process" not in line:
        return False
    if "shutting down" not in line:
        return True
    # A worker changes its name, then closes its ports, then sleeps until the next event of its last connections.
    try:
        return Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[0] == "R"
    except OSError:
        return False
