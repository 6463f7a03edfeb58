"""The pytest fixtures, in a project of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.embedded

PROJECT = {
    "conftest.py": 'pytest_plugins = ["kubeloop.testing.plugin"]\n',
    "pytest.ini": "[pytest]\nasyncio_mode = MODE\nasyncio_default_fixture_loop_scope = function\nfilterwarnings = error\n",
    "test_it.py": """\
import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.meta import ObjectMeta


@pytest.mark.asyncio
@pytest.mark.parametrize("turn", [1, 2])
async def test_it(kube_client, turn):
    await kube_client.create(ConfigMap(metadata=ObjectMeta(name="a"), data={"turn": str(turn)}))
    assert (await kube_client.get(ConfigMap, "a")).data == {"turn": str(turn)}


@pytest.mark.asyncio
async def test_without_a_socket(in_process_server):
    await in_process_server.client().create(ConfigMap(metadata=ObjectMeta(name="a")))
    assert [call.verb for call in in_process_server.faults.calls] == ["create"]


def test_in_step(kubeloop_cluster):
    assert kubeloop_cluster.kubeconfig.exists()
""",
}


@pytest.mark.parametrize("mode", ["strict", "auto"])
def test_a_project_gets_one_cluster_and_a_namespace_for_each_test(tmp_path: Path, mode: str) -> None:
    for name, text in PROJECT.items():
        (tmp_path / name).write_text(text.replace("MODE", mode))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout
