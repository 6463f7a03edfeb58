"""Serves the hooks: in a cluster behind a Service, or for a server on this machine."""

from __future__ import annotations

import argparse
import asyncio
import sys

from examples.webhook.hooks import hooks
from kubeloop import Client, KubeloopError, Manager
from kubeloop.controller.webhooks import ManagedCertificates, Register, Service, WebhookServer

NAME = "deployment-policy"


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.webhook", description=__doc__)
    parser.add_argument("--namespace", default="default", help="of the Service and of the Secret with the certificates")
    parser.add_argument("--local", action="store_true", help="for a server on this machine: no Service, any free port of loopback")
    arguments = parser.parse_args()
    service = Service(arguments.namespace, NAME)
    async with Client.from_config() as client:
        if arguments.local:
            certificates = ManagedCertificates(NAME, arguments.namespace, ["127.0.0.1"])
            server = WebhookServer(hooks, certificates, client=client, port=0, register=Register(NAME))
        else:
            certificates = ManagedCertificates(NAME, arguments.namespace, service.dns_names)
            server = WebhookServer(hooks, certificates, client=client, host="0.0.0.0", port=9443, register=Register(NAME, service))
        await Manager(client, servers=[server]).run()


try:
    asyncio.run(main())
except KubeloopError as error:
    sys.exit(f"{NAME}: {error}")
