"""``python -m examples.pod_informer``: one line for each pod that comes, changes or goes, until SIGINT or SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys

import click

from kubeloop import Client, InformerFactory, KubeloopError
from kubeloop.api.core.v1 import Pod
from kubeloop.cache import Head, InformerEvent, WatchPolicy

#: Seconds between resyncs: so often each pod is shown again, changed or not.
RESYNC = 30.0
#: What the lines show. Read from the wire beside each pod's metadata: no pod is ever decoded here.
PHASE, NODE = "status.phase", "spec.nodeName"


@click.command()
@click.option("--kubeconfig", type=click.Path(), help="Kubeconfig file. Default: KUBECONFIG, ~/.kube/config, or the pod's own cluster.")
@click.option("-n", "--namespace", default="default", show_default=True, help="Whose pods to show.")
@click.option("--resync", default=RESYNC, show_default=True, help="Seconds between resyncs, 0 for none.")
@click.option("--list", "lists", is_flag=True, help="Begin with a list in pages, not with a stream of the state.")
@click.option("-v", "--verbose", is_flag=True, help="Log what the informer does, on stderr.")
def main(kubeconfig: str | None, namespace: str, resync: float, lists: bool, verbose: bool) -> None:
    """Show pods as they come, change and go."""
    logging.basicConfig(level=logging.DEBUG if verbose else logging.WARNING, format="%(asctime)s %(levelname).1s %(name)s: %(message)s")
    try:
        asyncio.run(run(kubeconfig, namespace, resync, lists))
    except KubeloopError as error:
        sys.exit(f"pod-informer: {error}")
    say("main stopped...")


async def run(kubeconfig: str | None, namespace: str, resync: float, lists: bool) -> None:
    """Until a signal comes.

    Raises:
        ConfigError, Forbidden, Unauthorized, DeadlineError: it cannot begin; the text says why.
    """
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, _stop, signal.Signals(number).name, stop)
    async with Client.from_config(kubeconfig) as client:
        say(f'starting: pods in namespace "{namespace}" of cluster "{client.cluster}", resync every {resync:g} s')
        async with InformerFactory(client, resync=resync, policy=WatchPolicy(watch_list=not lists)) as informers:
            pods = informers.for_kind(Pod, namespace=namespace, paths=[PHASE, NODE])
            pods.on_event(added=added, updated=updated, deleted=deleted)
            await informers.wait_synced()
            say(f"synced: {len(pods.lister)} pods")
            await stop.wait()


def _stop(name: str, stop: asyncio.Event) -> None:
    say(f"received {name}: stopping")
    stop.set()


def added(event: InformerEvent[Pod]) -> None:
    say(f"ADD {event.key}  {shown(event.head)}")


def updated(event: InformerEvent[Pod]) -> None:
    if event.old is None or event.old is event.head:
        say(f"MOD {event.key}  {shown(event.head)} (resync)")
        return
    before, after = shown(event.old), shown(event.head)
    say(f"MOD {event.key}  {after if before == after else f'{before} -> {after}'}")


def deleted(event: InformerEvent[Pod]) -> None:
    say(f"DEL {event.key}  {shown(event.head)}{' (its end was not seen)' if event.tombstone else ''}")


def shown(pod: Head) -> str:
    node = pod.value(NODE)
    ending = ", being deleted" if pod.deleting else ""
    return f"{pod.value(PHASE) or 'Unknown'}{f' on {node}' if node else ''}{ending}"


def say(line: str) -> None:
    """At once, also into a pipe."""
    click.echo(line)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
