"""emptyDir volumes in memory: a file system that is mounted once, and unmounted with the pod or the kubelet's folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeloop.kubelet.memory_volumes import mount_memory, unmount_memory
from kubeloop.kubelet.node_folder import FolderLock


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "a volume"
    folder.mkdir()
    folder.chmod(0o2777)
    if not mount_memory(folder, 1 << 20):
        pytest.skip("this user may not mount")
    yield folder
    unmount_memory(tmp_path)


def test_a_volume_in_memory_has_the_mode_and_size_that_were_set(folder: Path) -> None:
    assert os.path.ismount(folder)
    assert folder.stat().st_mode & 0o7777 == 0o2777
    with pytest.raises(OSError, match="No space left"):
        (folder / "large").write_bytes(bytes(2 << 20))


def test_a_volume_is_mounted_once_and_its_files_end_with_it(folder: Path) -> None:
    (folder / "file").touch()
    assert mount_memory(folder)
    assert (folder / "file").exists()
    unmount_memory(folder.parent)
    assert not os.path.ismount(folder)
    assert list(folder.iterdir()) == []


def test_the_removal_of_the_kubelets_folder_unmounts_its_volumes(folder: Path) -> None:
    FolderLock.acquire(folder.parent).remove()
    assert not folder.parent.exists()


def test_a_user_who_may_not_mount_gets_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        @staticmethod
        def mount(*_: object) -> int:
            return -1

    monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: Refusing)
    assert not mount_memory(tmp_path)
