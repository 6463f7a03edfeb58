"""The bitcoin operator with real daemons, beside the real kube-controller-manager and kube-scheduler, on kubeloop's kubelet.

With ``make test-real`` the API server is kube-apiserver. The steps are those of ``make demo-bitcoin``, and so is the program.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from examples.bitcoin_operator.daemon import install, require_mount_namespaces, write_image_map
from examples.bitcoin_operator.demo_programs import Program, python
from examples.bitcoin_operator.demo_steps import STEPS, NetworkStage, write_operator_kubeconfig
from examples.bitcoin_operator.demo_steps import install as install_operator
from examples.bitcoin_operator.rpc import RpcClient
from examples.sample_controller.kubectl import Kubectl
from tests.realserver.controller_manager import controller_manager
from tests.realserver.kube_scheduler import kube_scheduler
from tests.servers import ServerUnderTest

pytestmark = [pytest.mark.server, pytest.mark.upstream, pytest.mark.timeout(1800)]


@pytest.fixture
def controlled(server: ServerUnderTest) -> Iterator[ServerUnderTest]:
    """The server under test, with Kubernetes' own controllers and scheduler."""
    with controller_manager(server), kube_scheduler(server.kubeconfig):
        yield server


@pytest.fixture
async def stage(controlled: ServerUnderTest, tmp_path: Path) -> AsyncIterator[NetworkStage]:
    """The cluster with one node, whose pods are processes."""
    require_mount_namespaces()
    # Other tests leave nodes without a kubelet, on which the daemons would never start.
    await Kubectl(controlled.kubeconfig, tmp_path)("delete", "nodes", "--all", timeout=30)
    write_image_map(tmp_path / "images.yaml", install())
    flags = ["--kubeconfig", str(controlled.kubeconfig), "--name", "bitcoin", "--image-map", str(tmp_path / "images.yaml")]
    kubelet = Program(
        "kubelet",
        python("kubeloop", "kubelet", *flags, "--root-dir", str(tmp_path / "node"), "--anonymous-auth"),
        ready="ready bitcoin",
        show=print,
        shown=(" ERROR ", " E "),
    )
    await kubelet.start()
    try:
        async with RpcClient() as rpc:
            yield NetworkStage(Kubectl(controlled.kubeconfig, tmp_path), print, kubelet, rpc)
    finally:
        await kubelet.stop()


async def test_the_operator_forms_changes_repairs_and_removes_a_network_of_real_daemons(stage: NetworkStage, tmp_path: Path) -> None:
    await install_operator(stage)
    await write_operator_kubeconfig(stage, tmp_path / "operator")
    words = ["examples.bitcoin_operator", "--kubeconfig", str(tmp_path / "operator")]
    operator = Program("operator", python(*words), ready="caches are synced", show=print, shown=(" ERROR ", " E "))
    await operator.start()
    try:
        for title, action in STEPS:
            print(title, flush=True)
            await action(stage)
    except Exception:
        await stage.diagnose()
        print(operator.last_lines())
        raise
    finally:
        await operator.stop()
        await stage.kubectl("delete", "node", "bitcoin", timeout=30)
        await stage.kubectl("delete", "crd", "bitcoinnetworks.bitcoincontroller.christianb93.github.com", timeout=60)
    assert not any("Forbidden" in line for line in operator.lines)
