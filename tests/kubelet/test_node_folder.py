"""The folder of a kubelet: its lock, relative paths, and temporary folders that killed servers left."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from kubeloop.cli.kubelet import ProcessPods
from kubeloop.client import Client
from kubeloop.config import ClusterConfig
from kubeloop.kubelet.kubelet import KubeletOptions, ProcessKubelet
from kubeloop.kubelet.node_folder import FolderLock, remove_stale_folders
from kubeloop.meta import ConfigError
from tests.kubelet.conftest import ProcessCluster, inner_kubelet
from tests.kubelet.test_process_pods import is_ready, shell_pod, wait


async def test_a_folder_that_another_kubelet_uses_or_that_is_none_is_refused(tmp_path: Path) -> None:
    config = ClusterConfig(server="https://127.0.0.1:1")
    lock = FolderLock.acquire(tmp_path / "root")
    try:
        with pytest.raises(ConfigError, match=r"another kubelet uses it; end that one, or name another folder"):
            await ProcessKubelet(config, KubeletOptions("b", tmp_path / "root")).run()
    finally:
        lock.release()
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"--root-dir .*/file/root: Not a directory; name a folder that you may write"):
        await ProcessKubelet(config, KubeletOptions("a", tmp_path / "file/root")).run()


@pytest.mark.embedded
@pytest.mark.timeout(90)
async def test_a_relative_folder_is_one_of_the_working_directory(
    client: Client, cluster: ProcessCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with inner_kubelet(cluster, "relative", Path("folder")) as node:
        assert node.options.folder == tmp_path / "folder/relative"
        await client.create(shell_pod("inside", "sleep 1000", node="relative", volumes=[{"name": "data", "emptyDir": {}}]))
        await wait(client, "inside", is_ready)
        await client.delete(shell_pod("inside", ""), grace_period_seconds=0)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files of this test."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_the_folder_of_a_killed_server_is_removed_and_its_containers_are_ended(temporary: Path) -> None:
    program = (
        "import os, signal; from kubeloop.kubelet.node_folder import FolderLock; lock = FolderLock.create_temporary(); "
        "(lock.folder / 'node.key').touch(); lock.write_prefix('prefix'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", program], env={"TMPDIR": str(temporary)}, check=False)
    [folder] = temporary.iterdir()
    assert (folder / "node.key").exists()
    prefixes: list[str] = []
    remove_stale_folders(prefixes.append)
    assert not folder.exists()
    assert prefixes == ["prefix"]


def test_folders_of_running_servers_and_folders_without_a_lock_file_stay(temporary: Path) -> None:
    running = FolderLock.create_temporary()
    fresh = Path(tempfile.mkdtemp(prefix="kubeloop-kubelet-"))
    remove_stale_folders(lambda _: pytest.fail("nothing is left"))
    assert running.folder.is_dir()
    assert fresh.is_dir()
    running.release()


def test_a_link_to_a_folder_is_not_followed(temporary: Path) -> None:
    target = temporary / "target"
    FolderLock.acquire(target).release()
    (temporary / "kubeloop-kubelet-link").symlink_to(target)
    remove_stale_folders(lambda _: pytest.fail("nothing is left"))
    assert target.is_dir()


def test_the_folder_of_a_server_without_data_goes_with_it_and_is_not_made_for_a_bad_flag(temporary: Path) -> None:
    with pytest.raises(ConfigError, match=r"--image-map .*none.yaml: No such file or directory; write a file with images"):
        ProcessPods(temporary / "none.yaml", None).check()
    assert list(temporary.iterdir()) == []
    pods = ProcessPods(None, None)
    assert pods._folder.is_dir()
    pods.clean_up()
    assert list(temporary.iterdir()) == []
