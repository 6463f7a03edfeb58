"""Records ``transcripts/simulated``: ``python -m tests.kubectl.record_simulated [NAME ...]``. Needs Go.

The server is a fresh kube-apiserver with etcd, kube-controller-manager and kube-scheduler; nodes and metrics are the simulated ones, since
a kubelet needs more than this machine may have.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from kubeloop.client import Client
from kubeloop.config import load_config
from kubeloop.pki import CertificateAuthority
from kubeloop.pki.files import write_secret
from kubeloop.transport import Transport
from tests.kubectl.pool import namespace_with_nodes
from tests.kubectl.transcript import Session, parse, written
from tests.realserver.building import binaries
from tests.realserver.controller_manager import controller_manager
from tests.realserver.kube_scheduler import kube_scheduler
from tests.realserver.serving import real_server
from tests.servers import ServerUnderTest

FOLDER = Path(__file__).parent / "transcripts" / "simulated"
#: The node that the tests of controllers share.
OTHER_NODE = "kubeloop-node"


def main() -> None:
    names = tuple(sys.argv[1:])
    with (
        tempfile.TemporaryDirectory() as home,
        real_server(binaries(), aggregation_flags(Path(home))) as kubeconfig,
        controller_manager(ServerUnderTest(kubeconfig)),
        kube_scheduler(kubeconfig),
    ):
        for path in sorted(FOLDER.glob("*.txt")):
            if not names or path.stem in names:
                asyncio.run(record(path, kubeconfig, Path(home)))
                print(f"recorded {path.name}", flush=True)


def aggregation_flags(home: Path) -> list[str]:
    """Return the flags of kube-apiserver with which extension servers believe it, as those of any cluster."""
    authority = CertificateAuthority.create("front-proxy-ca")
    proxy = authority.issue("front-proxy-client", client=True)
    for name, content in (("ca.crt", authority.certificate), ("client.crt", proxy.certificate), ("client.key", proxy.key)):
        write_secret(home / f"front-proxy-{name}", content)
    return [
        f"--requestheader-client-ca-file={home / 'front-proxy-ca.crt'}", "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={home / 'front-proxy-client.crt'}", f"--proxy-client-key-file={home / 'front-proxy-client.key'}",
    ]  # fmt: skip


async def record(path: Path, kubeconfig: Path, home: Path) -> None:
    namespace = f"transcript-{path.stem}"
    async with Client(Transport(load_config(kubeconfig))) as client, namespace_with_nodes(client, namespace, OTHER_NODE):
        with tempfile.TemporaryDirectory() as folder:
            session = Session(kubeconfig, namespace, home, Path(folder))
            parts = await asyncio.to_thread(lambda: list(session.play(parse(path.read_text()))))
        path.write_text(written(parts))


if __name__ == "__main__":
    main()
