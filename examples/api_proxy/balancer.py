"""``python -m examples.api_proxy.balancer SERVICE``: a small load balancer, which learns its backends from EndpointSlices.

It does what an ingress controller does with endpoints: an informer follows them, and connections go to them in turn. It knows nothing of a
proxy in front of the API server.
"""

from __future__ import annotations

import asyncio
import contextlib

import click

import kubeloop
from kubeloop import Client, InformerFactory
from kubeloop.api.discovery.v1 import EndpointSlice
from kubeloop.cache import Informer, InformerEvent

Address = tuple[str, int]


class Balancer:
    """Forwards each TCP connection to the next backend.

    Args:
        service: Name of the Service.
        slices: Informer of its EndpointSlices.
    """

    def __init__(self, service: str, slices: Informer[EndpointSlice]) -> None:
        self._service = service
        self._slices = slices
        self._backends: list[Address] = []
        self._connections = 0
        slices.on_event(added=self._changed, updated=self._changed, deleted=self._changed)

    def update(self) -> None:
        """Read the backends from the cache, and print them if they changed."""
        backends = sorted(
            {
                (address, port.port or 0)
                for slice_ in self._slices.lister.list()
                for endpoint in slice_.endpoints
                if endpoint.conditions.ready is not False
                for address in endpoint.addresses
                for port in slice_.ports or ()
            }
        )
        if backends != self._backends:
            self._backends = backends
            print(f"backends of {self._service}: {' '.join(f'{host}:{port}' for host, port in backends) or 'none'}", flush=True)

    def _changed(self, event: InformerEvent[EndpointSlice]) -> None:
        del event  # the cache has the state of all slices
        self.update()

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection. Without a backend that answers it is closed."""
        with contextlib.closing(writer):
            if not self._backends:
                return
            host, port = self._backends[self._connections % len(self._backends)]
            self._connections += 1
            try:
                async with asyncio.timeout(5):
                    from_backend, to_backend = await asyncio.open_connection(host, port)
            except OSError as error:
                print(f"no connection to {host}:{port}: {type(error).__name__}", flush=True)
                return
            with contextlib.closing(to_backend):
                await asyncio.gather(_copy(reader, to_backend), _copy(from_backend, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.write_eof()


@click.command()
@click.argument("service")
@click.option("--kubeconfig", help="Default: $KUBECONFIG, ~/.kube/config, or the pod's own cluster.")
@click.option("--listen", default="127.0.0.1:0", show_default=True, help="Address of the balancer.")
def main(service: str, kubeconfig: str | None, listen: str) -> None:
    """Balance connections to SERVICE until Ctrl-C."""

    async def run() -> None:
        async with Client.from_config(kubeconfig) as client, InformerFactory(client) as informers:
            slices = informers.for_kind(EndpointSlice, label_selector=f"kubernetes.io/service-name={service}")
            balancer = Balancer(service, slices)
            await informers.wait_synced()
            balancer.update()
            host, _, port = listen.rpartition(":")
            async with await asyncio.start_server(balancer.forward, host, int(port)) as server:
                print("listening on http://{}:{}".format(*server.sockets[0].getsockname()), flush=True)
                await server.serve_forever()

    kubeloop.run(run())


if __name__ == "__main__":
    main()
