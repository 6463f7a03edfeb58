"""The process that runs the program once: ``kubeloop run`` starts it for each state of the sources, and ends it by SIGTERM.

Ctrl-C reaches it too, as every process of the terminal; the starter handles it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from kubeloop.cli.run.options import FAILED, MISUSED, RunOptions

if TYPE_CHECKING:
    from kubeloop.client import Client
    from kubeloop.controller import Manager
    from kubeloop.timing import Clock

T = TypeVar("T")

#: Seconds between two checks for new imports.
_IMPORTS_PERIOD = 1.0
#: Packages whose modules are never watched.
_NOT_DEVELOPED = {*sys.stdlib_module_names, "__main__", "kubeloop"}


def main(text: str) -> int:
    """Run the program and return its exit status. ``text`` is the JSON of ``RunOptions``."""
    options = msgspec.json.decode(text, type=RunOptions)
    if options.kubeconfig:
        os.environ["KUBECONFIG"] = options.kubeconfig  # So that clients that the program makes by itself use it, too.
    from kubeloop.cli.application import named
    from kubeloop.cli.run.app import WANTED
    from kubeloop.meta.errors import ConfigError

    # Python trusts a compiled file if size and second of its source agree; that is wrong for sources that change within a second.
    sys.dont_write_bytecode = True
    try:
        found = named(options.target, WANTED)
    except ConfigError as error:
        _tell(error)
        return FAILED if error.__cause__ is not None else MISUSED
    imports = _Imports(options.imports)
    imports.write()
    return asyncio.run(_run(found, options, imports))


async def _run(obj: Any, options: RunOptions, imports: _Imports) -> int:
    from kubeloop.cli.run.app import manager_of
    from kubeloop.cli.run.webhooks import forget_crash
    from kubeloop.client import Client
    from kubeloop.config import Overrides
    from kubeloop.meta.errors import ConfigError

    end = _End(options.lifeline)
    try:
        config = Client.from_config(options.kubeconfig or None, options.context or None, overrides=Overrides(namespace=options.namespace))
        async with config as client:
            try:
                manager = await end.unless(manager_of(obj, options, client))
            except ConfigError as error:
                _tell(error)
                return MISUSED
            if manager is None:
                return 0
            if not options.embedded:
                await end.unless(forget_crash(client, options))
            if options.embedded and not await end.unless(_install(client, manager, options)):
                return 0
            end.then(manager.request_stop)
            await _managed(manager, options, imports)
    except ConfigError as error:
        _tell(error)
        return MISUSED
    except Exception as error:  # noqa: BLE001  # any error of the program is reported, and the starter waits for a change
        _tell(error)
        return FAILED
    finally:
        end.close()
    return 0


async def _install(client: Client, manager: Manager, options: RunOptions) -> bool:
    from kubeloop.cli.run.app import controllers_of
    from kubeloop.cli.run.manifests import install
    from kubeloop.controller.permissions import kinds_of

    manifests = [Path(one) for one in options.manifests]
    done = await install(client, kinds_of(controllers_of(manager)), manifests, options.namespace)
    for line in done:
        print(line, flush=True)
    return True


async def _managed(manager: Manager, options: RunOptions, imports: _Imports) -> None:
    from kubeloop.cli.run.board import DashboardSnapshots
    from kubeloop.cli.run.live_view import follow, view_of
    from kubeloop.controller.manager.logs import LogOutput
    from kubeloop.tasks import end_tasks
    from kubeloop.timing import SystemClock

    with view_of(options.live) as view, contextlib.closing(LogOutput("text", "debug" if options.verbose else "info")):
        shown = asyncio.create_task(follow(DashboardSnapshots(options.target, manager), view, SystemClock()), name="view")
        written = asyncio.create_task(imports.write_later(SystemClock()), name="imports")
        try:
            await manager.run(signals=False)
        finally:
            await end_tasks(shown, written, logger=logging.getLogger("kubeloop.cli"))


class _Imports:
    """Writes the paths of the program's modules to a file, from which the starter reads the files to watch."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._modules = 0
        self._written: set[str] = set()

    def write(self) -> None:
        """Write the modules imported since the last call."""
        if self._file < 0 or len(sys.modules) == self._modules:
            return
        self._modules = len(sys.modules)
        found = set()
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if isinstance(file, str) and name.partition(".")[0] not in _NOT_DEVELOPED:
                found.add(str(Path(file).absolute()))
        if new := sorted(found - self._written):
            self._written.update(new)
            os.write(self._file, b"".join(os.fsencode(path) + b"\n" for path in new))

    async def write_later(self, clock: Clock) -> None:
        """Write later imports of the running program, until cancelled."""
        while True:
            await clock.sleep(_IMPORTS_PERIOD)
            self.write()


class _End:
    """Ends the running work at SIGTERM or when the lifeline closes; a second SIGTERM ends the process at once."""

    def __init__(self, lifeline: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._lifeline = lifeline
        self._asked = False
        self._act: Callable[[], object] = lambda: None
        self._loop.add_signal_handler(signal.SIGTERM, self._received)
        if lifeline >= 0:
            self._loop.add_reader(lifeline, self._deserted)

    def then(self, act: Callable[[], object]) -> None:
        """Set the action that ends the running work."""
        self._act = act
        if self._asked:
            act()

    async def unless(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Return the result of ``work``. If the process must end first, cancel ``work`` and return None."""
        task = asyncio.ensure_future(work)
        self.then(task.cancel)
        try:
            return await task
        except asyncio.CancelledError:
            if not self._asked:
                raise
            return None

    def close(self) -> None:
        self._loop.remove_signal_handler(signal.SIGTERM)
        if self._lifeline >= 0:
            self._loop.remove_reader(self._lifeline)

    def _received(self) -> None:
        if self._asked:
            os._exit(128 + signal.SIGTERM)
        self._asked = True
        self._act()

    def _deserted(self) -> None:
        self._loop.remove_reader(self._lifeline)
        if not self._asked:
            self._received()


def _tell(error: BaseException) -> None:
    import click

    click.secho("Error: ", fg="red", bold=True, err=True, nl=False)
    for line in _told(error):
        click.echo(line, err=True)


def _told(error: BaseException) -> Iterator[str]:
    """Yield the lines of an error, with the code position for an error of the program's own code."""
    from kubeloop.meta.errors import KubeloopError

    if isinstance(error, BaseExceptionGroup):
        yield error.message
        for one in error.exceptions:
            yield from _told(one)
        return
    if isinstance(error, KubeloopError):
        yield str(error)
    else:
        from kubeloop.cli.run.app import AppError

        if not isinstance(error, AppError):
            yield from _traced(error)
            return
        yield str(error)
    if error.__cause__ is not None and not isinstance(error.__cause__, KubeloopError):
        yield from _traced(error.__cause__)
    elif error.__cause__ is not None and str(error.__cause__) not in str(error):
        yield f"  {error.__cause__}"


def _traced(error: BaseException) -> Iterator[str]:
    """Yield the lines of an error's traceback, without frames of kubeloop and of Python's import system."""
    import traceback

    import kubeloop

    ours = str(Path(kubeloop.__file__).parent)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith((ours, "<frozen"))]
    frames = [frame for frame in frames if "/importlib/" not in frame.filename]
    for text in [*traceback.format_list(frames), *traceback.format_exception_only(error)]:
        yield text.rstrip("\n")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    sys.exit(main(sys.argv[1]))
