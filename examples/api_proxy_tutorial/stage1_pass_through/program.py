"""The program around each proxy of the tutorial: where the API server is, where the proxy listens, and a kubeconfig for its clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import click

import kubeloop
from examples.api_proxy_tutorial.stage1_pass_through.proxy import PassThrough
from kubeloop.config import RequestAuthenticator, load_config
from kubeloop.reverseproxy.backend import Backend
from kubeloop.serving.listener import Listener
from kubeloop.timing import SystemClock

_KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: proxy
clusters: [{{name: proxy, cluster: {{server: "{url}"}}}}]
contexts: [{{name: proxy, context: {{cluster: proxy, user: anonymous}}}}]
users: [{{name: anonymous, user: {{}}}}]
"""


async def find_backend() -> Backend:
    """Return the API server of $KUBECONFIG. The proxy is its client, with the certificate of the kubeconfig."""
    config = load_config()
    url = urlsplit(config.server)
    assert url.hostname is not None
    certificate = await RequestAuthenticator(config, SystemClock()).client_certificate()
    return Backend(url.hostname, url.port or 443, config.ssl_context(certificate))


def _write(clients: Path, url: str) -> None:
    clients.write_text(_KUBECONFIG.format(url=url))


def main(make: Callable[[Backend], PassThrough]) -> None:
    """Serve a proxy until Ctrl-C, and write a kubeconfig for its clients to CLIENTS."""

    @click.command()
    @click.argument("clients", type=click.Path(path_type=Path))
    def command(clients: Path) -> None:
        async def run() -> None:
            proxy = make(await find_backend())
            listener = Listener(proxy.handle, None)
            await listener.bind()
            await listener.serve()
            _write(clients, listener.url)
            print(f"ready {listener.url}", flush=True)
            try:
                await asyncio.Event().wait()
            finally:
                await listener.close()

        kubeloop.run(run())

    command()
