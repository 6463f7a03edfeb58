"""The server that a suite runs against: the embedded one, or with KUBELOOP_TEST_SERVER=real the one that KUBELOOP_TEST_KUBECONFIG names.

That may be several paths, as in PATH: then each of pytest's workers has a server of its own, as it has of embedded ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kubeloop.config import ClusterConfig, load_config
from kubeloop.testing import LocalCluster


@dataclass(frozen=True)
class ServerUnderTest:
    """``kubeconfig`` is an administrator's. ``cluster`` is None for a real server."""

    kubeconfig: Path
    cluster: LocalCluster | None = None

    @property
    def is_real(self) -> bool:
        return self.cluster is None

    @property
    def keys(self) -> Path:
        """The folder of its certificate authority and of the key of service accounts' tokens: ``ca.crt``, ``ca.key``, ``sa.key``."""
        return self.kubeconfig.parent / ("" if self.is_real else "authority")

    @property
    def authority(self) -> str:
        """The certificate to trust, PEM."""
        found = self.config.ca
        assert found is not None
        return found.read().decode("ascii")

    @property
    def config(self) -> ClusterConfig:
        return load_config(self.kubeconfig)


def real_is_wanted() -> bool:
    return os.environ.get("KUBELOOP_TEST_SERVER", "embedded") == "real"


@contextmanager
def server_under_test(*, controllers: bool) -> Iterator[ServerUnderTest]:
    """Started for the context, unless it is a real one, which whoever calls pytest starts (``make test-real``)."""
    if real_is_wanted():
        yield ServerUnderTest(_of_this_worker(os.environ["KUBELOOP_TEST_KUBECONFIG"].split(os.pathsep)))
        return
    # All of admission, as a real one has it: without controllers a LocalCluster asks for no service account.
    with LocalCluster(controllers=controllers, disable_admission_plugins=()) as cluster:
        yield ServerUnderTest(cluster.kubeconfig, cluster)


def _of_this_worker(kubeconfigs: list[str]) -> Path:
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    if worker >= len(kubeconfigs):
        raise ValueError(
            f"worker {worker + 1} of pytest has no server: KUBELOOP_TEST_KUBECONFIG names {len(kubeconfigs)};"
            f" name as many, separated by {os.pathsep!r}, or run with fewer workers (-n)"
        )
    return Path(kubeconfigs[worker])
