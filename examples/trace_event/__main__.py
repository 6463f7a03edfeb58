"""``python -m examples.trace_event``: follow one event through kubeloop, on a new server or on yours."""

from __future__ import annotations

import asyncio
import sys

import click
from rich.console import Console

from examples.trace_event.picture import draw
from examples.trace_event.program import trace
from examples.trace_event.tracer import StationVisit
from kubeloop import KubeloopError
from kubeloop.config import load_config
from kubeloop.testing import LocalCluster


@click.command()
@click.option("--kubeconfig", type=click.Path(), help="Kubeconfig file of a server to use. Default: an embedded one, started for this.")
@click.option("-n", "--namespace", default="default", show_default=True, help="Where to make the pod.")
def main(kubeconfig: str | None, namespace: str) -> None:
    """Print the stations of one watch event, with time and bytes."""
    try:
        visits = _trace(kubeconfig, namespace)
    except KubeloopError as error:
        sys.exit(f"trace-event: {error}")
    draw(visits, Console(highlight=False))


def _trace(kubeconfig: str | None, namespace: str) -> list[StationVisit]:
    if kubeconfig is not None:
        return asyncio.run(trace(load_config(kubeconfig), namespace))
    with LocalCluster(controllers=False) as cluster:
        return asyncio.run(trace(load_config(cluster.kubeconfig), namespace))


if __name__ == "__main__":
    main()
