"""A fresh server for the scenarios of the set ``plain``: the embedded one, or with KUBELOOP_TEST_SERVER=real a kube-apiserver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kubeloop.config import load_config
from kubeloop.testing import LocalCluster
from tests.conformance.scenario import write_tokens
from tests.conformance.wire import Server
from tests.proxy.in_front import authority_file, proxied
from tests.realserver.building import binaries
from tests.realserver.serving import ETCD, real_server
from tests.servers import real_is_wanted

#: The path by which the embedded server compacts its store.
COMPACT = "/debug/compact?revision={revision}"
#: The path by which etcd does.
_ETCD_COMPACT = "/v3/kv/compaction"


@contextmanager
def fresh_server(folder: Path, *, proxy: bool) -> Iterator[Server]:
    """Start a server without controllers that knows the users of the scenarios.

    Args:
        folder: An empty folder.
        proxy: A ``kubeloop proxy`` stands in front of it.
    """
    tokens = folder / "tokens.csv"
    write_tokens(tokens)
    with ExitStack() as stack:
        if real_is_wanted():
            kubeconfig = stack.enter_context(real_server(binaries(), [f"--token-auth-file={tokens}"]))
            compact = (kubeconfig.parent / ETCD).read_text() + _ETCD_COMPACT
        else:
            cluster = LocalCluster(controllers=False, token_auth_file=tokens, disable_admission_plugins=())
            kubeconfig, compact = stack.enter_context(cluster).kubeconfig, COMPACT
        if proxy:
            kubeconfig = stack.enter_context(proxied(kubeconfig, folder))
        server = Server(load_config(kubeconfig).server, str(authority_file(kubeconfig)), tokens, compact)
        yield server
        server.close()
