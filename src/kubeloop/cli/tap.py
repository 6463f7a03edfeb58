"""``kubeloop tap``: shows and records what a command sends to its cluster; replays recordings and makes reports of them."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from kubeloop.cli.group import CommandGroup
from kubeloop.config.kubeconfig.edit import write_private
from kubeloop.meta.errors import KubeloopError
from kubeloop.meta.signals import on_signal
from kubeloop.types import JSONObject

if TYPE_CHECKING:
    from kubeloop.tap.recording import Recording

_FILE = click.Path(dir_okay=False, path_type=Path)
#: Where the words after ``--`` are stored in the context.
_COMMAND = "kubeloop.tap.command"

_EPILOG = """\b
Examples:
  kubeloop tap -- kubectl get pods -w                   show the conversation of kubectl
  kubeloop tap --record run.har -- ./my-controller      record it too; then: kubeloop tap report run.har
  kubeloop tap --quiet --keylog keys.log -- kubectl get ns    secrets for Wireshark
  kubeloop tap replay run.har                           serve the recording as an API server
"""


class _TapGroup(CommandGroup):
    """A group that is also a command: what follows ``--`` is the command to run."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        before, rest = args, None
        if "--" in args:
            at = args.index("--")
            before, rest = args[:at], args[at + 1 :]
        result = super().parse_args(ctx, before)
        if rest is None:
            return result
        if ctx._protected_args:  # a subcommand, whose arguments they are
            ctx.args = [*ctx.args, "--", *rest]
            return ctx.args
        ctx.meta[_COMMAND] = rest
        return result

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if self.get_command(ctx, args[0]) is None and not ctx.resilient_parsing:
            near = self._hint(ctx, args[0])
            ctx.fail(f"No such command '{args[0]}'.{near} To run a program, put -- before it: kubeloop tap -- {' '.join(args)}")
        return super().resolve_command(ctx, args)


@click.group(cls=_TapGroup, invoke_without_command=True, epilog=_EPILOG, subcommand_metavar="-- COMMAND...")
@click.option("--kubeconfig", type=_FILE, help="Default: $KUBECONFIG, ~/.kube/config, or the pod's own cluster.")
@click.option("--context", help="Context of the kubeconfig.")
@click.option("--record", type=_FILE, metavar="FILE.har", help="Record everything as HAR, without secrets.")
@click.option("--keylog", type=_FILE, metavar="FILE", help="Write the TLS secrets of both sides for Wireshark (NSS key log).")
@click.option("-o", "--output", type=_FILE, metavar="FILE", help="Write the conversation to this file instead of standard error.")
@click.option("--force", is_flag=True, help="Overwrite files of --record, --keylog and --output that exist.")
@click.option("--proxy-url", is_flag=True, help="Keep the server's address: the kubeconfig gets a proxy-url instead.")
@click.option("--https-proxy", is_flag=True, help="Keep the kubeconfig: the environment gets HTTPS_PROXY instead.")
@click.option("--trust", is_flag=True, help="With --https-proxy: let the kubeconfig trust the tap's certificate authority.")
@click.option("--anonymous", is_flag=True, help="Do not present the kubeconfig's client certificate to the server.")
@click.option("--show-secrets", is_flag=True, help="Show and record tokens and the values of Secrets.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port of the tap on 127.0.0.1. Default: a free one.")
@click.option("-q", "--quiet", is_flag=True, help="Do not show the conversation.")
@click.pass_context
def tap(ctx: click.Context, /, **options: Any) -> None:
    """Show live what COMMAND sends to its cluster, and what it gets.

    The command runs with a temporary kubeconfig that leads through a local TLS proxy. The conversation goes to standard error: lists with
    their pages, watches with their events and what these changed, times and sizes. The exit status is that of the command.
    """
    if ctx.invoked_subcommand is not None:
        return
    command = ctx.meta.get(_COMMAND)
    if not command:
        raise click.UsageError("no command: write it after --, as in: kubeloop tap -- kubectl get pods", ctx)
    _check(options)
    from kubeloop.cli.tap_view.live import LiveView
    from kubeloop.cli.tap_view.terminal import LineWriter
    from kubeloop.tap.command import CommandNotRunnable, Interrupted
    from kubeloop.tap.session import TapOptions, run_tap
    from kubeloop.timing import SystemClock

    mode = _mode(options)
    names = ("kubeconfig", "context", "trust", "anonymous", "record", "keylog", "show_secrets", "port")
    wanted = TapOptions(command=command, mode=mode, overwrite=options["force"], **{name: options[name] for name in names})
    clock = SystemClock()
    started = clock.now()
    try:
        with _view_file(options["output"], overwrite=options["force"]) as file:
            view = LiveView(LineWriter(file or sys.stderr), show_secrets=wanted.show_secrets, only_warnings=options["quiet"])
            views = [view] if file is None else [view, LiveView(LineWriter(sys.stderr), only_warnings=True)]
            status = asyncio.run(run_tap(wanted, views, clock))
            view.summary(clock.now() - started, str(wanted.record or ""))
    except CommandNotRunnable as error:
        click.echo(f"kubeloop tap: {error}", err=True)
        sys.exit(error.status)
    except Interrupted as error:
        sys.exit(error.status)
    except (KubeloopError, OSError) as error:
        raise click.ClickException(str(error)) from None
    sys.exit(status)


@contextmanager
def _view_file(path: Path | None, *, overwrite: bool) -> Iterator[TextIO | None]:
    """Open the file of --output, for the context; None: there is none. The file is removed if the command could not be started."""
    from kubeloop.tap.recorder import create_private, remove_file

    if path is None:
        yield None
        return
    with io.TextIOWrapper(create_private(path, overwrite=overwrite), encoding="utf-8", errors="backslashreplace") as file:
        try:
            yield file
        except KubeloopError:  # the tap raises it only before the command starts
            remove_file(path)
            raise


def _check(options: dict[str, Any]) -> None:
    if options["proxy_url"] and options["https_proxy"]:
        raise click.UsageError("--proxy-url and --https-proxy exclude each other")
    if options["trust"] and not options["https_proxy"]:
        raise click.UsageError("--trust is for --https-proxy; otherwise the kubeconfig trusts the tap anyway")
    for first, second in itertools.combinations([name for name in ("record", "keylog", "output") if options[name] is not None], 2):
        if options[first].absolute() == options[second].absolute():
            raise click.UsageError(f"--{first} and --{second} name the same file")


def _mode(options: dict[str, Any]) -> Any:
    from kubeloop.tap.client_config import TapMode

    return TapMode.PROXY_URL if options["proxy_url"] else TapMode.HTTPS_PROXY if options["https_proxy"] else TapMode.SERVER


@tap.command()
@click.argument("file", type=_FILE)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port on 127.0.0.1. Default: a free one.")
@click.option(
    "--speed", type=click.Choice(["original", "fast"]), default="original", show_default=True, help="Respond as then, or at once."
)
@click.option("--kubeconfig-out", type=_FILE, metavar="FILE", help="Where to write a kubeconfig. Default: a temporary file.")
def replay(file: Path, port: int, speed: str, kubeconfig_out: Path | None) -> None:
    """Serve a recording as an API server.

    Requests get the recorded responses to the same method, path and query, in the recorded order; others get 404. Prints
    "ready URL kubeconfig=FILE" when it answers; ends on SIGINT or SIGTERM.
    """
    from kubeloop.tap.recording import read_recording

    try:
        recording = read_recording(file)
        if not recording.complete:
            click.echo(f"{file}: the recording was not finished; its last steps may be missing", err=True)
        status = asyncio.run(_replay(recording, port, kubeconfig_out, fast=speed == "fast"))
    except (KubeloopError, OSError) as error:
        raise click.ClickException(str(error)) from None
    sys.exit(status)


async def _replay(recording: Recording, port: int, kubeconfig_out: Path | None, *, fast: bool) -> int:
    """Serve until a signal arrives; return the exit status.

    Args:
        recording: The responses.
        port: The port; 0 for a free one.
        kubeconfig_out: Where to write the kubeconfig. None: a temporary file.
        fast: Respond at once.
    """
    from kubeloop.serving.listener import Listener
    from kubeloop.tap.certificates import TapCertificates
    from kubeloop.tap.client_config import TemporaryKubeconfig
    from kubeloop.tap.replay import ReplayServer, replay_kubeconfig
    from kubeloop.timing import SystemClock

    ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def end(number: int) -> None:
        if not ended.done():
            ended.set_result(0 if number == signal.SIGTERM else 128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        on_signal(number, partial(end, number))
    certificates = TapCertificates()
    server = ReplayServer(recording, SystemClock(), fast=fast)
    listener = Listener(server.handle, certificates.context("127.0.0.1"), port=port)
    await listener.bind()
    temporary: TemporaryKubeconfig | None = None
    try:
        content = replay_kubeconfig(listener.port, certificates.authority)
        if kubeconfig_out is None:
            temporary = TemporaryKubeconfig(content)
        else:
            write_private(kubeconfig_out, json.dumps(content, indent=2).encode())
        await listener.serve()
        click.echo(f"ready {listener.url} kubeconfig={temporary.path if temporary is not None else kubeconfig_out}")
        return await ended
    finally:
        if temporary is not None:
            temporary.remove()
        await listener.close(grace=0)


@tap.command()
@click.argument("file", type=_FILE)
@click.option("-o", "--output", type=_FILE, metavar="FILE.html", help="Default: the name of the recording with .html.")
def report(file: Path, output: Path | None) -> None:
    """Make one HTML page of a recording: a timeline, each request and watch event, and what changed from event to event.

    The page needs no other file and no network. It works with keyboard and mouse, in light and dark.
    """
    from kubeloop.tap.recording import read_recording
    from kubeloop.tap.report.page import report_page

    try:
        recording = read_recording(file)
        target = output or file.with_suffix(".html")
        if target.absolute() == file.absolute():
            raise click.UsageError(f"{target}: the page would replace the recording; name another file with -o")
        page = report_page(recording, report_differences)
        write_private(target, page)
    except (KubeloopError, OSError) as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"{target}: {len(page) / 1e6:.2f} MB")


def report_differences(before: JSONObject, after: JSONObject) -> list[list[Any]]:
    """Return the differences of two states of an object as the report shows them: path, before, after."""
    from kubeloop.cli.watch_view.diff import ABSENT, changes, without_noise
    from kubeloop.codec.redact_secrets import plain

    def side(value: Any) -> JSONObject:
        return {} if value is ABSENT else {"value": plain(value)}

    return [[one.path, side(one.before), side(one.after)] for one in changes(without_noise(before), without_noise(after))]
