"""The command ``kubeloop run``."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubeloop.cli.flags import DurationParameter
from kubeloop.cli.group import Command
from kubeloop.meta.errors import ConfigError

if TYPE_CHECKING:
    from kubeloop.cli.run.options import RunOptions
    from kubeloop.cli.run.sources import SourceFiles

_FILE = click.Path(dir_okay=False, path_type=Path)
_THERE = click.Path(exists=True, path_type=Path)

#: Timeout in seconds for the embedded server's start.
_READY = 120.0

_EPILOG = """\b
Examples:
  kubeloop run web_operator.app:controllers --embedded    no cluster needed
  kubeloop run web:WebController --embedded --apply samples/
  kubeloop run web:app --context dev -n shop              the current state of a cluster

\b
MODULE:NAME is one of
  a controller, its class, or a list of these, of Webhooks, and of other things that a Manager runs
  a function, async or not, that takes the client or nothing and returns one of these, or a Manager
"""


@click.command(cls=Command, epilog=_EPILOG)
@click.argument("app", metavar="MODULE:NAME")
@click.option("--kubeconfig", type=_FILE, help="Default: $KUBECONFIG, ~/.kube/config, or the pod's own cluster.")
@click.option("--context", default="", help="Context of the kubeconfig.")
@click.option("-n", "--namespace", default="", help="The program works in this namespace only. Default: in all.")
@click.option("--embedded", is_flag=True, help="Run against an embedded API server, with the program's custom kinds installed.")
@click.option("--apply", "manifests", type=_THERE, multiple=True, help="With --embedded: manifests to apply, a file or folder; repeatable.")
@click.option("--settings", type=_THERE, help="The manager's settings, YAML or TOML. Variables KUBELOOP_MANAGER_* count, too.")
@click.option("--leader-election", is_flag=True, help="Elect a leader as the settings say. Default: no leader election, whatever they say.")
@click.option("--reload/--no-reload", default=True, show_default=True, help="Restart when a module that the program imports changes.")
@click.option("--watch", "more", type=_THERE, multiple=True, help="Further files or folders whose changes restart the program; repeatable.")
@click.option("--live/--no-live", default=None, help="Show a table of controllers and queues. Default: on a terminal.")
@click.option(
    "--webhook-url",
    default="",
    metavar="https://HOST:PORT",
    help=(
        "Address at which the cluster reaches this machine: serve the program's webhooks there. "
        "Default: on loopback with --embedded, else nowhere."
    ),
)
@click.option("--grace", type=DurationParameter(), default=10.0, show_default=True, help="Seconds (or as in 1m) to end gracefully.")
@click.option("-v", "--verbose", is_flag=True, help="Log more.")
def run(
    app: str,
    kubeconfig: Path | None,
    context: str,
    namespace: str,
    embedded: bool,
    manifests: tuple[Path, ...],
    settings: Path | None,
    leader_election: bool,
    reload: bool,
    more: tuple[Path, ...],
    live: bool | None,
    webhook_url: str,
    grace: float,
    verbose: bool,
) -> None:
    """Run the controllers of MODULE:NAME while you develop them: they restart on each change of their sources, and a table shows them live.

    Ctrl-C ends them gracefully, a second Ctrl-C at once. After a fault in the sources, they start again at the next change.
    """
    if not hasattr(signal, "pthread_sigmask"):
        raise click.ClickException("kubeloop run needs Linux or macOS; on Windows run the program itself (python -m ...), or use WSL")
    if embedded and (kubeconfig or context):
        raise click.UsageError("--embedded brings its own cluster; leave out --kubeconfig and --context")
    if manifests and not embedded:
        raise click.UsageError("--apply fills the server of --embedded; for a cluster use: kubectl apply -f")
    from kubeloop.cli.run.options import RunOptions
    from kubeloop.cli.run.sources import sources_of
    from kubeloop.cli.run.webhooks import listening_port

    options = RunOptions(
        target=app,
        kubeconfig=str(kubeconfig.absolute()) if kubeconfig else "",
        context=context,
        namespace=namespace,
        settings=str(settings) if settings else "",
        leader_election=leader_election,
        embedded=embedded,
        manifests=tuple(str(path) for path in manifests),
        live=(sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb") if live is None else live,
        verbose=verbose,
        grace=grace,
        webhook_url=webhook_url,
    )
    try:
        if webhook_url:
            listening_port(webhook_url)
        sources = sources_of(app, [*more, *manifests])
        sys.exit(_supervise(options, sources if reload else None))
    except ConfigError as error:
        raise click.ClickException(str(error)) from None


def _supervise(options: RunOptions, sources: SourceFiles | None) -> int:
    import msgspec

    from kubeloop.cli.run.supervisor import ProcessSupervisor

    with contextlib.ExitStack() as stack:
        if options.embedded:
            from kubeloop.testing import LocalCluster

            cluster = stack.enter_context(LocalCluster(timeout=_READY))
            _say(f"embedded server: kubectl --kubeconfig {cluster.kubeconfig}")
            options = msgspec.structs.replace(options, kubeconfig=str(cluster.kubeconfig))
        if sources is not None:
            others = "".join(f", {path}" for path in sources.others)
            _say(f"running {options.target}; restarts on a change of the modules that it imports{others}")
        return ProcessSupervisor(options, sources, _say).run()


def _say(text: str) -> None:
    click.secho(f"kubeloop: {text}", dim=True, err=True)
