"""The server that a suite runs against: the embedded one, or with KUBELOOP_TEST_SERVER=real the server that KUBELOOP_TEST_KUBECONFIG names.

That may be several paths, as in PATH: then each of pytest's workers has its own server, as with embedded ones.
With KUBELOOP_TEST_PROXY=1 the suite runs through a ``kubeloop proxy`` in front of it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from kubeloop import blocking
from kubeloop.config import ClusterConfig, load_config
from kubeloop.testing import LocalCluster


@dataclass(eq=False)
class ServerUnderTest:
    """``kubeconfig`` is an administrator's. ``cluster`` is None for a real server."""

    kubeconfig: Path
    cluster: LocalCluster | None = None
    #: The kubeconfig of the server itself, if ``kubeconfig`` is that of a proxy in front of it.
    direct: Path | None = None
    _opened: ExitStack = field(default_factory=ExitStack, repr=False)

    @property
    def is_real(self) -> bool:
        return self.cluster is None

    @property
    def keys(self) -> Path:
        """The folder of its certificate authority and of the key of service accounts' tokens: ``ca.crt``, ``ca.key``, ``sa.key``."""
        return (self.direct or self.kubeconfig).parent / ("" if self.is_real else "authority")

    @property
    def authority(self) -> str:
        """The certificate to trust, PEM."""
        found = self.config.ca
        assert found is not None
        return found.read().decode("ascii")

    @cached_property
    def config(self) -> ClusterConfig:
        return load_config(self.kubeconfig)

    @cached_property
    def administrator(self) -> blocking.Client:
        """A client with one connection for all tests, since a TLS handshake takes longer than the creation of a namespace."""
        return self._opened.enter_context(blocking.Client.from_config(self.kubeconfig))

    def close(self) -> None:
        self._opened.close()


def real_is_wanted() -> bool:
    return os.environ.get("KUBELOOP_TEST_SERVER", "embedded") == "real"


def proxy_is_wanted() -> bool:
    return os.environ.get("KUBELOOP_TEST_PROXY", "") not in ("", "0")


@contextmanager
def server_under_test(*, controllers: bool) -> Iterator[ServerUnderTest]:
    """Started for the context, unless it is a real one, which the caller of pytest starts (``make test-real``)."""
    with ExitStack() as stack:
        cluster = None
        if real_is_wanted():
            kubeconfig = _of_this_worker(os.environ["KUBELOOP_TEST_KUBECONFIG"].split(os.pathsep))
        else:
            # All of admission, as a real one has it: without controllers a LocalCluster asks for no service account.
            cluster = stack.enter_context(LocalCluster(controllers=controllers, disable_admission_plugins=()))
            kubeconfig = cluster.kubeconfig
        direct = None
        if proxy_is_wanted():
            direct, kubeconfig = kubeconfig, stack.enter_context(_proxied(kubeconfig))
        yield stack.enter_context(closing(ServerUnderTest(kubeconfig, cluster, direct)))


@contextmanager
def _proxied(kubeconfig: Path) -> Iterator[Path]:
    from tests.proxy.in_front import proxied

    with tempfile.TemporaryDirectory() as folder, proxied(kubeconfig, Path(folder)) as found:
        yield found


def _of_this_worker(kubeconfigs: list[str]) -> Path:
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    if worker >= len(kubeconfigs):
        raise ValueError(
            f"worker {worker + 1} of pytest has no server: KUBELOOP_TEST_KUBECONFIG names {len(kubeconfigs)};"
            f" name as many, separated by {os.pathsep!r}, or run with fewer workers (-n)"
        )
    return Path(kubeconfigs[worker])
