"""``kubeloop watch``: shows changes of the objects of a kind, live. An informer does the watching."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import signal
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from kubeloop.cli.group import Command
from kubeloop.meta.errors import ConfigError, Forbidden, KubeloopError, Unauthorized
from kubeloop.meta.signals import on_signal
from kubeloop.tasks import end_tasks

if TYPE_CHECKING:
    from kubeloop.cache import Informer, InformerEvent
    from kubeloop.client.discovery import ApiResource
    from kubeloop.meta import Unstructured

_FILE = click.Path(dir_okay=False, path_type=Path)
#: Maximum number of names in the summary of the initial objects.
_NAMED = 5

_EPILOG = """\b
Examples:
  kubeloop watch pods                         pods of the context's namespace
  kubeloop watch deploy web -n shop           one object, also while it does not exist
  kubeloop watch po -A -l app=web             all namespaces, by label
  kubeloop watch certificates.cert-manager.io any kind that the server knows
  kubeloop watch jobs -o json | jq .changes   for programs
"""


@dataclass(frozen=True)
class WatchRequest:
    """The arguments and options of ``kubeloop watch``, without those of the kubeconfig."""

    kind: str
    name: str | None
    namespace: str | None
    all_namespaces: bool
    selector: str | None
    field_selector: str | None
    output: str
    initial: bool
    all_fields: bool
    once: bool


@click.command(cls=Command, epilog=_EPILOG)
@click.argument("kind")
@click.argument("name", required=False)
@click.option("-n", "--namespace", help="Namespace. Default: that of the context.")
@click.option("-A", "--all-namespaces", is_flag=True, help="All namespaces.")
@click.option("-l", "--selector", metavar="LABELS", help="Only objects with these labels: app=web,tier!=db")
@click.option("--field-selector", metavar="FIELDS", help="Only objects with these fields: spec.nodeName=n1")
@click.option(
    "-o", "--output", type=click.Choice(["text", "json", "name"]), default="text", show_default=True, help="How changes are printed."
)
@click.option("--initial", is_flag=True, help="List the initial objects one by one.")
@click.option("--all-fields", is_flag=True, help="Also show managedFields, resourceVersion and other noise.")
@click.option("--once", is_flag=True, help="End after the first change.")
@click.option("--context", help="Context of the kubeconfig.")
@click.option("--kubeconfig", type=_FILE, help="Default: $KUBECONFIG, ~/.kube/config, or the pod's own cluster.")
def watch(kubeconfig: Path | None, context: str | None, **options: Any) -> None:
    """Show live what changes in the objects of a KIND, field by field.

    KIND is a plural, a short name or a kind (pods, po, Pod), with its group where needed (ingresses.networking.k8s.io). Ends on Ctrl-C;
    connections that break, servers that restart and histories that expire are reported and survived. Values of secrets are never shown.
    """
    wanted = WatchRequest(**options)
    try:
        _check(wanted)
        status = asyncio.run(_run(wanted, kubeconfig, context))
    except KeyboardInterrupt:  # before the loop's own handler is in place
        status = 128 + signal.SIGINT
    except (Unauthorized, Forbidden) as error:
        raise click.ClickException(f"{error}\n  This needs the verbs list and watch: kubectl auth can-i watch {wanted.kind}") from None
    except (KubeloopError, OSError, ValueError) as error:
        if isinstance(error, BrokenPipeError):
            _leave_quietly()
        raise click.ClickException(str(error)) from None
    sys.exit(status)


async def _run(request: WatchRequest, kubeconfig: Path | None, context: str | None) -> int:
    ended = _Ended()
    work = asyncio.ensure_future(_watch(request, kubeconfig, context, ended))
    waiting = asyncio.ensure_future(ended.happened.wait())
    try:
        await asyncio.wait({work, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            await work
    finally:
        waiting.cancel()
        with contextlib.suppress(KubeloopError):
            await end_tasks(work)
    if ended.error is not None:
        raise ended.error
    return ended.status


class _Ended:
    """The end of the command with its exit status: set by SIGINT and SIGTERM, or by the watch itself."""

    def __init__(self) -> None:
        self.happened = asyncio.Event()
        self.status = 0
        self.error: Exception | None = None
        for one in (signal.SIGINT, signal.SIGTERM):
            on_signal(one, partial(self.end, 128 + one))

    def end(self, status: int = 0, error: Exception | None = None) -> None:
        if not self.happened.is_set():
            self.status, self.error = status, error
            self.happened.set()


async def _watch(request: WatchRequest, kubeconfig: Path | None, context: str | None, ended: _Ended) -> None:
    from kubeloop.cache import InformerFactory
    from kubeloop.cli.watch_view.printer import notes
    from kubeloop.client import Client
    from kubeloop.meta import Unstructured

    note = notes()
    async with Client.from_config(kubeconfig, context) as client:
        found = await client.mapper.find(request.kind)
        namespace = _namespace(request, found, client.namespace)
        kind = Unstructured.for_kind(found.gvk.api_version, found.gvk.kind, plural=found.gvr.resource, namespaced=found.namespaced)
        fields = _fields(request)
        # The server reports errors in the request here, at once; an informer would retry for ever.
        await client.list_page(kind, namespace=namespace, label_selector=request.selector, field_selector=fields, limit=1)
        with _told(note):
            async with InformerFactory(client) as informers:
                informer = informers.for_kind(
                    kind, namespace=namespace, label_selector=request.selector, field_selector=fields, managed_fields=request.all_fields
                )
                show = _Show(request, found, ended)
                # The handler waits for a pager that does not read, as intended: no warning that it is slow.
                informer.on_event(added=show, updated=show, deleted=show, name="watch").meter.limit = math.inf
                await informers.wait_synced()
                note(_summary(informer))
                await asyncio.Event().wait()


def _check(request: WatchRequest) -> None:
    """Check the request without a server."""
    from kubeloop.client.selector_text import field_text, label_text
    from kubeloop.meta import names

    if request.namespace and (faults := names.dns1123_label(request.namespace)):
        raise ConfigError(f"-n {request.namespace!r} cannot be a namespace: {'; '.join(faults)}")
    label_text(request.selector, "-l ")
    field_text(request.field_selector, "--field-selector ")


def _namespace(request: WatchRequest, resource: ApiResource, default: str) -> str | None:
    if missing := {"list", "watch"} - set(resource.verbs):
        raise ConfigError(f"{resource.gvr.resource} cannot be watched: the server does not offer {' and '.join(sorted(missing))} for them")
    if not resource.namespaced:
        if request.namespace is not None:
            raise ConfigError(f"{resource.gvk.kind} is cluster-scoped: leave out -n {request.namespace}")
        return None
    if request.all_namespaces:
        if request.namespace is not None:
            raise ConfigError("-n and -A exclude each other")
        if request.name is not None:
            raise ConfigError(f"one {resource.gvk.kind} cannot be named across all namespaces: give its namespace with -n")
        from kubeloop.client import ALL_NAMESPACES

        return ALL_NAMESPACES
    return request.namespace or default


def _fields(request: WatchRequest) -> str | None:
    by_name = f"metadata.name={request.name}" if request.name is not None else None
    return ",".join(one for one in (by_name, request.field_selector) if one) or None


def _summary(informer: Informer[Unstructured]) -> str:
    heads = sorted(informer.lister.heads(), key=lambda head: (head.namespace, head.name))
    names = ", ".join(head.name for head in heads[:_NAMED]) + (", …" if len(heads) > _NAMED else "")
    count = "1 object" if len(heads) == 1 else f"{len(heads)} objects" if heads else "none yet"
    return f"{informer.description}: {count} at version {informer.resource_version}{f' ({names})' if names else ''}; watching"


class _Show:
    """The event handler of the informer: decodes both states of an object and prints the differences."""

    def __init__(self, request: WatchRequest, resource: ApiResource, ended: _Ended) -> None:
        from kubeloop.cli.watch_view.printer import printer_for

        self._wanted = request
        self._ended = ended
        group = f".{resource.gvr.group}" if resource.gvr.group else ""
        prefix = f"{resource.singular or resource.gvk.kind.lower()}{group}/"
        self._printer = printer_for(request.output, lambda tree: prefix + str(tree["metadata"]["name"]), request.all_fields)

    def __call__(self, event: InformerEvent[Unstructured]) -> None:
        if self._ended.happened.is_set() or (event.initial and not self._wanted.initial):
            return
        from kubeloop.timing import SystemClock

        word = "INITIAL" if event.initial else event.type.value
        # A deletion's last states differ in versions at most; all content of an added object is new.
        before = _tree(event.old.document()) if event.old is not None and word == "MODIFIED" else None
        try:
            self._printer.event(SystemClock().wall(), word, before, _tree(event.head.document()), self._note(event))
        except OSError as error:  # the reader has closed the pipe
            self._ended.end(1, error)
            return
        if self._wanted.once and not event.initial:
            self._ended.end()

    def _note(self, event: InformerEvent[Unstructured]) -> str:
        if event.tombstone:
            return "while the watch was down"
        # An object that leaves the selection is sent as deleted. Source: k8s.io/apiserver pkg/storage/cacher (filters of watchers).
        selected = self._wanted.selector or self._wanted.field_selector
        return "or no longer selected" if selected and event.type.value == "DELETED" else ""


def _tree(document: bytes) -> dict[str, Any]:
    tree: dict[str, Any] = msgspec.json.decode(document, type=dict)
    return tree


@contextlib.contextmanager
def _told(note: Any) -> Any:
    """Print the log records of list and watch (reconnects and their reasons) as notes within the block."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            note(record.getMessage())

    logger = logging.getLogger("kubeloop")
    handler = Handler(logging.WARNING)
    logger.addHandler(handler)
    propagate, logger.propagate = logger.propagate, False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate


def _leave_quietly() -> None:
    """Handle a closed standard output: no message, and no second error when the interpreter flushes."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(0)
