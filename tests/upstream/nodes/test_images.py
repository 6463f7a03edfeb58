"""The archives of stand-in images are OCI layouts that containerd takes."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.upstream.nodes.images import Image, _write_archive, names


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[tarfile.TarFile]:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    page = tmp_path / "page"
    page.write_text("hello")
    rights = tmp_path / "rights"
    rights.write_text("#!/bin/sh\n")
    files = {"/program": program, "/again": program, "/page": page, "/rights": rights}
    image = Image(["r.io/a:1", "r.io/b:2"], files, ["/program"], ["run"], user="7", shell=False, setuid=["/rights"])
    _write_archive(image, tmp_path / "image.tar", tmp_path)
    with tarfile.open(tmp_path / "image.tar") as opened:
        yield opened


def blob(archive: tarfile.TarFile, digest: str) -> bytes:
    file = archive.extractfile(f"blobs/{digest.replace(':', '/')}")
    assert file is not None
    content = file.read()
    assert hashlib.sha256(content).hexdigest() == digest.partition(":")[2]
    return content


def test_an_archive_says_which_images_it_holds(archive: tarfile.TarFile) -> None:
    assert isinstance(archive.name, str)
    assert names(Path(archive.name)) == ["r.io/a:1", "r.io/b:2"]


def test_each_name_of_an_image_leads_to_its_manifest_configuration_and_layer(archive: tarfile.TarFile) -> None:
    index = archive.extractfile("index.json")
    assert index is not None
    manifests = json.load(index)["manifests"]
    assert [entry["annotations"]["io.containerd.image.name"] for entry in manifests] == ["r.io/a:1", "r.io/b:2"]
    (digest,) = {entry["digest"] for entry in manifests}
    manifest = json.loads(blob(archive, digest))
    config = json.loads(blob(archive, manifest["config"]["digest"]))
    assert (config["config"]["Entrypoint"], config["config"]["Cmd"], config["config"]["User"]) == (["/program"], ["run"], "7")
    assert config["rootfs"]["diff_ids"] == [manifest["layers"][0]["digest"]]


def test_a_layer_has_the_files_with_their_modes_and_each_content_once(archive: tarfile.TarFile) -> None:
    (layer,) = (name for name in archive.getnames() if archive.getmember(name).size > 10_000)
    content = archive.extractfile(layer)
    assert content is not None
    with tarfile.open(fileobj=io.BytesIO(content.read())) as tar:
        entries = {
            entry.name: (oct(entry.mode), entry.linkname) for entry in tar.getmembers() if entry.name in ("program", "again", "page")
        }
        rights = tar.getmember("rights")
    assert entries == {"program": ("0o755", ""), "again": ("0o755", "program"), "page": ("0o644", "")}
    assert oct(rights.mode) == "0o6755"
