"""Parts of the long-running commands ``kubeloop server`` and ``kubeloop proxy``: the end of the program, and the file of the kubeconfig."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from pathlib import Path

import click

from kubeloop.meta.errors import ConfigError
from kubeloop.meta.signals import on_signal

_LOG = logging.getLogger("kubeloop.cli.server")

#: Seconds between checks whether the parent process still exists.
_PARENT_POLL = 1.0


def shutdown_event(*, exit_with_stdin: bool = False, parent: int = 0) -> asyncio.Event:
    """Return an event that is set when the program must end: by SIGINT or SIGTERM.

    Args:
        exit_with_stdin: Also by the end of standard input.
        parent: Also by the end of this process. 0: none.
    """
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


def refuse_options(context: click.Context, owner: str) -> None:
    """Refuse flags of a command before one of its subcommands, which have no effect there.

    Args:
        context: The context of the command.
        owner: What the flags belong to, for the message.
    """
    for name in context.params:
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            option = f"--{name.replace('_', '-')}"
            raise click.UsageError(f"{option} belongs to the {owner}; options of {context.invoked_subcommand} come after its name")


#: The names of all entries in kubeconfigs that ``kubeloop server`` and ``kubeloop proxy`` write.
_OWN_ENTRIES = {"kubeloop", "kubeloop-admin", "kubeloop-proxy"}


def writable_target(path: Path) -> Path:
    """Return the target of ``path``, with links followed: it must not exist, be empty, or be the kubeconfig of a former run.

    Raises:
        ConfigError: the file has other content, such as a kubeconfig with other clusters, which would be lost.
    """
    from kubeloop.config.kubeconfig import read_kubeconfig

    target = path.resolve()
    if not target.exists():
        return target
    if not target.is_file():
        raise ConfigError(f"{path}: not a regular file; name another one for the kubeconfig")
    if not target.stat().st_size:
        return target
    try:
        found = read_kubeconfig([target], must_exist=True)
    except ConfigError:
        raise ConfigError(f"{path}: exists and is not a kubeconfig, so it is left as it is; name another file, or delete it") from None
    if others := sorted({*found.clusters, *found.users, *found.contexts} - _OWN_ENTRIES):
        raise ConfigError(
            f"{path}: holds other entries ({', '.join(others)}), which would be lost, so it is left as it is; name another file, "
            f"and let kubectl merge: KUBECONFIG={path}:OTHER"
        )
    return target
