"""Files of volumes, and their atomic update."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kubeloop.kubelet.environment import ConfigurationError, ConfigurationSources, PodFields
from kubeloop.kubelet.runtime import BindMount
from kubeloop.kubelet.volume_files import VolumeFile, volume_payload, write_payload
from kubeloop.kubelet.volumes import PodVolumes, VolumeError, checked_host_path, container_mounts

NOW = datetime(2026, 1, 1, tzinfo=UTC)
POD: dict[str, Any] = {"metadata": {"name": "p", "namespace": "n", "labels": {"app": "web"}}, "spec": {"containers": [{"name": "c"}]}}
SOURCES = ConfigurationSources({("ConfigMap", "a"): {"x": b"1", "y": b"2"}, ("Secret", "s"): {"key": b"k"}, ("ConfigMap", "gone"): None})


def payload(volume: dict[str, Any], tokens: dict[str, str] | None = None) -> dict[str, tuple[bytes, int]]:
    found = volume_payload(POD, {"name": "v", **volume}, SOURCES, PodFields(), tokens or {})
    return {path: (one.data, one.mode) for path, one in found.items()}


@pytest.mark.parametrize(
    ("volume", "expected"),
    [
        pytest.param({"configMap": {"name": "a"}}, {"x": (b"1", 0o644), "y": (b"2", 0o644)}, id="every key of a ConfigMap"),
        pytest.param({"secret": {"secretName": "s", "defaultMode": 0o400}}, {"key": (b"k", 0o400)}, id="a Secret with a mode"),
        pytest.param(
            {"configMap": {"name": "a", "items": [{"key": "x", "path": "d/f", "mode": 0o600}]}}, {"d/f": (b"1", 0o600)}, id="chosen keys"
        ),
        pytest.param({"configMap": {"name": "gone", "optional": True}}, {}, id="a missing optional ConfigMap"),
        pytest.param(
            {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
            {"labels": (b'app="web"', 0o644)},
            id="the downward API",
        ),
        pytest.param(
            {"projected": {"sources": [{"secret": {"name": "s"}}, {"serviceAccountToken": {"path": "token"}}]}},
            {"key": (b"k", 0o644), "token": (b"T", 0o644)},
            id="projected sources",
        ),
    ],
)
def test_payload(volume: dict[str, Any], expected: dict[str, tuple[bytes, int]]) -> None:
    assert payload(volume, {"token": "T"}) == expected


@pytest.mark.parametrize(
    ("volume", "message"),
    [
        pytest.param({"configMap": {"name": "gone"}}, 'configmap "gone" not found', id="a missing ConfigMap"),
        pytest.param(
            {"configMap": {"name": "a", "items": [{"key": "z", "path": "z"}]}},
            "configmap references non-existent config key: z",
            id="a missing key",
        ),
        pytest.param(
            {"secret": {"secretName": "s", "items": [{"key": "z", "path": "z"}]}}, "references non-existent secret key: z", id="of a Secret"
        ),
    ],
)
def test_a_payload_that_cannot_be_made_says_why(volume: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        payload(volume)


def test_files_are_replaced_together_through_one_link(tmp_path: Path) -> None:
    first = {"a": VolumeFile(b"1"), "d/b": VolumeFile(b"2", 0o600)}
    assert write_payload(tmp_path, first, NOW)
    assert not write_payload(tmp_path, first, NOW)
    before = (tmp_path / "..data").readlink()
    assert (tmp_path / "a").readlink() == Path("..data/a")
    assert (tmp_path / "d/b").stat().st_mode & 0o777 == 0o600
    assert write_payload(tmp_path, {"a": VolumeFile(b"3")}, NOW)
    assert (tmp_path / "a").read_text() == "3"
    assert not (tmp_path / "d").is_symlink()
    assert (tmp_path / "..data").readlink() != before
    assert not (tmp_path / before).exists()


def test_a_sub_path_stays_within_its_volume(tmp_path: Path) -> None:
    (tmp_path / "v").mkdir()
    (tmp_path / "v/out").symlink_to(tmp_path)
    volumes = PodVolumes({"v": tmp_path / "v"})

    def mounts(**mount: Any) -> list[BindMount]:
        return container_mounts({"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/m", **mount}]}, volumes, {"NAME": "x"})

    assert mounts(readOnly=True) == [BindMount(tmp_path / "v", "/m", True)]
    assert mounts(subPathExpr="logs-$(NAME)")[0].source == tmp_path / "v/logs-x"
    for part in ("../etc", "/etc", "out"):
        with pytest.raises(ConfigurationError, match='failed to prepare subPath for volumeMount "v" of container "c"'):
            mounts(subPath=part)


def test_a_mount_of_no_volume_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match='cannot find volume "v"'):
        container_mounts({"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/m"}]}, PodVolumes(), {})


def test_the_type_of_a_host_path_is_checked(tmp_path: Path) -> None:
    assert checked_host_path({"path": str(tmp_path / "new"), "type": "DirectoryOrCreate"}).is_dir()
    assert checked_host_path({"path": str(tmp_path / "file"), "type": "FileOrCreate"}).is_file()
    with pytest.raises(VolumeError, match=r"hostPath type check failed: .*file is not a directory"):
        checked_host_path({"path": str(tmp_path / "file"), "type": "Directory"})
