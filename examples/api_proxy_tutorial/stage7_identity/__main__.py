"""``python -m examples.api_proxy_tutorial.stage7_identity CLIENTS``: serve over TLS. CLIENTS gets a certificate of ann, a user of devs."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import kubeloop
from examples.api_proxy_tutorial.stage1_pass_through.program import find_backend
from examples.api_proxy_tutorial.stage7_identity.proxy import UserProxy
from kubeloop.config.kubeconfig.generated import kubeconfig_text
from kubeloop.pki import CertificateAuthority
from kubeloop.pki.files import write_secret
from kubeloop.serving.listener import Listener, server_context


async def main(clients: Path) -> None:
    proxy = UserProxy(await find_backend())
    authority = CertificateAuthority.create("tutorial-ca")
    own = authority.issue("proxy", ip_addresses=["127.0.0.1"], server=True)
    listener = Listener(proxy.handle, server_context(own.certificate, own.key, authority.certificate))
    await listener.bind()
    await listener.serve()
    ann = authority.issue("ann", ["devs"], client=True)
    write_secret(clients, kubeconfig_text(listener.url, authority.certificate, ann, "ann"))
    print(f"ready {listener.url}", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        await listener.close()


if __name__ == "__main__":
    kubeloop.run(main(Path(sys.argv[1])))
