"""OCI image layouts: reading, refused layouts, and containers that run from them."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import sys
import tarfile
import threading
from pathlib import Path
from typing import Any

import pytest

from kubeloop.api.core.v1 import Pod
from kubeloop.client import Client
from kubeloop.kubelet.container_process import StartError
from kubeloop.kubelet.image_store import ImageStore
from kubeloop.kubelet.images import ImageEntry, ImageError, ImageMap, ImagePuller
from kubeloop.kubelet.oci_layout import ImageLayout, LayoutError
from kubeloop.kubelet.oci_unpack import LayerUnpacker, UnpackOptions
from kubeloop.kubelet.runtime import Isolation, ProcessRuntime, ProcessSpec, detect_isolation
from kubeloop.timing import FakeClock
from tests.kubelet.conftest import IMAGES, ProcessCluster
from tests.kubelet.layouts import Entry, LayoutMaker, entry, files, programs, unpack
from tests.kubelet.test_process_pods import ended, is_ready, reasons, until, wait
from tests.kubelet.test_runtime import EACH, output

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

pytestmark = pytest.mark.timeout(120)
DIRECTORY, LINK, HARD = tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE


@pytest.fixture
def maker(tmp_path: Path) -> LayoutMaker:
    return LayoutMaker(tmp_path / "layout")


def unpack_image(layout_path: Path, root: Path) -> None:
    """Unpack the first layer of a layout's image."""
    with ImageLayout(layout_path) as layout, layout.layer(layout.image("latest").manifest.layers[0]) as stream:
        LayerUnpacker(root, UnpackOptions()).apply(stream)


# ---------------------------------------------------------------------------------------------------------------------- layouts


@pytest.mark.parametrize("form", ["folder", "tar", "tar of ./ names"])
@pytest.mark.parametrize("compress", [bytes, zstd.compress], ids=["plain", "zstd"])
def test_a_layout_is_a_folder_or_an_archive(maker: LayoutMaker, tmp_path: Path, form: str, compress: Any) -> None:
    path = maker.image([[("a", b"1")]], compress=compress, Entrypoint=["/a"])
    if form != "folder":
        path = tmp_path / "layout.tar"
        with tarfile.open(path, "w") as tar:
            tar.add(maker.folder, "." if "./" in form else "")
    with ImageLayout(path) as layout:
        image = layout.image("latest")
        assert image.settings.entrypoint == ["/a"]
        with layout.layer(image.manifest.layers[0]) as stream:
            LayerUnpacker(unpack(tmp_path / "root"), UnpackOptions()).apply(stream)
    assert files(tmp_path / "root") == {"a": "1"}


def test_the_tag_chooses_among_several_images(maker: LayoutMaker) -> None:
    for name in ("1.0", "2.0"):
        maker.image([], name, Env=[f"V={name}"])
    with ImageLayout(maker.folder) as layout:
        assert layout.image("2.0").settings.env == ["V=2.0"]
        with pytest.raises(LayoutError, match=r'2 images "3\.0" for linux/.*; it has 1\.0, 2\.0'):
            layout.image("3.0")


def test_an_index_in_an_index_chooses_by_machine(maker: LayoutMaker) -> None:
    maker.image([], "x", Env=["V=mine"])
    maker.image([], "x", architecture="m68k")
    mine, other = maker.manifests
    nested = [{**mine, "platform": {"os": "linux", "architecture": json.loads(_config(maker, mine))["architecture"]}}]
    nested.append({**other, "platform": {"os": "linux", "architecture": "m68k"}})
    blob = maker.blob(json.dumps({"manifests": nested}).encode(), mediaType="application/vnd.oci.image.index.v1+json")
    maker.manifests = [blob]
    maker.write_index()
    with ImageLayout(maker.folder) as layout:
        assert layout.image("latest").settings.env == ["V=mine"]


def _config(maker: LayoutMaker, manifest: dict[str, Any]) -> bytes:
    blobs = maker.folder / "blobs/sha256"
    tree = json.loads((blobs / manifest["digest"].partition(":")[2]).read_bytes())
    digest: str = tree["config"]["digest"]
    return (blobs / digest.partition(":")[2]).read_bytes()


def _spoil(maker: LayoutMaker, fault: str) -> None:
    """Break a layout in one way."""
    manifest = maker.manifests[0]
    blob = maker.folder / "blobs/sha256" / manifest["digest"].partition(":")[2]
    if fault == "content":
        blob.write_bytes(blob.read_bytes()[:-1] + b" ")
    elif fault == "longer":
        blob.write_bytes(blob.read_bytes() + b" ")
    elif fault == "missing":
        blob.unlink()
    elif fault == "digest":
        manifest["digest"] = "sha256:../../../../etc/passwd"
    elif fault == "size":
        manifest["size"] = 1 << 40
    elif fault == "machine":
        maker.manifests = []
        maker.image([], architecture="m68k")
    maker.write_index()
    if fault == "json":
        (maker.folder / "index.json").write_text('{"manifests": [{"digest": 5}]}')
    elif fault == "deep":
        (maker.folder / "index.json").write_text("[" * 100_000)
    elif fault == "index":
        (maker.folder / "index.json").unlink()
    elif fault == "marker":
        (maker.folder / "oci-layout").unlink()
    elif fault == "version":
        (maker.folder / "oci-layout").write_text('{"imageLayoutVersion": "2.0.0"}')


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("content", "does not have this digest"),
        ("longer", "does not have this digest"),
        ("missing", "no such file"),
        ("digest", "is not a digest"),
        ("size", "and may have"),
        ("machine", "the image is for linux/m68k"),
        ("json", "index.json is malformed"),
        ("deep", "index.json is malformed"),
        ("index", "no such file"),
        ("marker", "is a folder or a tar archive"),
        ("version", "names no version 1.0.0"),
    ],
)
def test_a_broken_layout_is_refused_with_the_reason(maker: LayoutMaker, fault: str, message: str) -> None:
    maker.image([[("a", b"1")]])
    _spoil(maker, fault)
    with pytest.raises(LayoutError, match=message), ImageLayout(maker.folder) as layout:
        layout.image("latest")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("{layout: 5}", "layout must be the path", id="a number"),
        pytest.param("{layout: {reference: x}}", "layout must be the path", id="no path"),
        pytest.param("{layout: {path: x, setuid: yes}}", "layout must be the path", id="another choice"),
    ],
)
def test_an_entry_with_a_layout_that_makes_no_sense_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "images.yaml").write_text(f"images: {{web: {text}}}")
    with pytest.raises(Exception, match=message):
        ImageMap(tmp_path / "images.yaml")


# ------------------------------------------------------------------------------------------------------------------------ pulls


class Pulls:
    """A puller with a map of one image, and the reasons of its Events."""

    def __init__(self, folder: Path, **fields: str) -> None:
        options = "".join(f", {name}: {value}" for name, value in fields.items())
        (folder / "images.yaml").write_text(f"images: {{app: {{layout: {{path: layout{options}}}}}}}")
        self.clock, self.reasons = FakeClock(), list[str]()
        self.store = ImageStore(folder / "kubelet")
        self.puller = ImagePuller(ImageMap(folder / "images.yaml"), self.clock, self.store)

    async def ensure(self, policy: str = "IfNotPresent") -> ImageEntry:
        return await self.puller.ensure("app:1.0", policy, "uid", lambda _, reason, text: self.reasons.append(reason))

    async def fault(self, policy: str = "IfNotPresent") -> tuple[str, str]:
        with pytest.raises(ImageError) as raised:
            await self.ensure(policy)
        return raised.value.reason, raised.value.message


PASSWD = b"root:x:0:0:root:/root:/bin/sh\nweb:x:1000:100:Web:/home/web:/bin/sh\n"


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        pytest.param(
            {}, {"command": (), "user": None, "group": None, "environment": {"HOME": "/root"}, "working_directory": "/"}, id="nothing"
        ),
        pytest.param({"Entrypoint": ["/a"], "Cmd": ["b"]}, {"command": ("/a",), "args": ("b",)}, id="entrypoint and arguments"),
        pytest.param(
            {"Env": ["A=1", "B=x=y", "HOME=/h"], "WorkingDir": "/w"},
            {"environment": {"HOME": "/h", "A": "1", "B": "x=y"}, "working_directory": "/w"},
            id="environment and folder",
        ),
        pytest.param({"User": "web"}, {"user": 1000, "group": 100, "environment": {"HOME": "/home/web"}}, id="a user by name"),
        pytest.param({"User": "1000"}, {"user": 1000, "group": 100}, id="a user by number"),
        pytest.param({"User": "7:8"}, {"user": 7, "group": 8, "environment": {"HOME": "/"}}, id="numbers that the image does not know"),
        pytest.param({"User": "web:staff"}, {"user": 1000, "group": 50}, id="a group by name"),
    ],
)
async def test_the_configuration_of_an_image_is_what_runs(
    maker: LayoutMaker, tmp_path: Path, config: dict[str, Any], expected: dict[str, Any]
) -> None:
    maker.image([[("etc/passwd", PASSWD), ("etc/group", b"staff:x:50:\n")]], "1.0", **config)
    pulls = Pulls(tmp_path)
    result = await pulls.ensure()
    assert {name: getattr(result, name) for name in expected} == expected
    assert result.root is not None
    assert (result.root / "etc/passwd").read_bytes() == PASSWD
    await pulls.ensure()
    assert pulls.reasons == ["Pulling", "Pulled", "Pulled"], "it is unpacked once"


async def test_a_refused_layer_fails_the_pull_and_backs_off_until_the_layout_changes(maker: LayoutMaker, tmp_path: Path) -> None:
    maker.image([[entry("dev/sda", tarfile.BLKTYPE)]], "1.0")
    pulls = Pulls(tmp_path)
    reason, message = await pulls.fault()
    assert (reason, '"dev/sda": it is a device file' in message) == ("ErrImagePull", True)
    assert (await pulls.fault())[0] == "ImagePullBackOff"
    maker.manifests.clear()
    maker.image([[("a", b"1")]], "1.0")
    assert (await pulls.ensure()).root is not None
    assert not list((tmp_path / "kubelet/images").glob("partial-*"))


async def test_a_broken_layout_fails_the_inspection(maker: LayoutMaker, tmp_path: Path) -> None:
    reason, message = await Pulls(tmp_path).fault()
    assert (reason, message.startswith('Failed to inspect image "app:1.0": ')) == ("ImageInspectError", True)
    maker.image([[]], "1.0", User="unknown")
    assert (await Pulls(tmp_path).fault())[1].endswith("the image's user unknown is not in its /etc/passwd")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        pytest.param({"User": "99999999999"}, "has no valid number", id="a user beyond the range"),
        pytest.param({"User": "web:none"}, "group none is not in its /etc/group", id="an unknown group"),
        pytest.param({"Env": ["=x"]}, "environment is malformed", id="a variable without a name"),
        pytest.param({"Env": ["A=\0"]}, "environment is malformed", id="a variable with a zero byte"),
    ],
)
async def test_a_configuration_that_cannot_run_fails_the_inspection(
    maker: LayoutMaker, tmp_path: Path, config: dict[str, Any], message: str
) -> None:
    maker.image([[("etc/passwd", PASSWD)]], "1.0", **config)
    reason, text = await Pulls(tmp_path).fault()
    assert (reason, message in text) == ("ImageInspectError", True)


async def test_an_unpacking_that_is_cancelled_leaves_nothing(maker: LayoutMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maker.image([[("a", b"1")]], "1.0")
    started = threading.Event()

    def go_on(self: LayerUnpacker, _: object) -> None:
        started.set()
        while True:
            self._options.check()

    monkeypatch.setattr(LayerUnpacker, "apply", go_on)
    pulling = asyncio.ensure_future(Pulls(tmp_path).ensure())
    await asyncio.to_thread(started.wait)
    pulling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pulling
    assert list((tmp_path / "kubelet/images").iterdir()) == []


def test_partial_images_of_a_killed_kubelet_are_removed(tmp_path: Path) -> None:
    (tmp_path / "images/partial-x/d").mkdir(parents=True)
    (tmp_path / "images/sha256-0").mkdir()
    ImageStore(tmp_path).remove_partial()
    assert [path.name for path in (tmp_path / "images").iterdir()] == ["sha256-0"]


@pytest.mark.parametrize("kind", [LINK, HARD, tarfile.FIFOTYPE, DIRECTORY])
def test_an_archive_whose_index_is_no_file_is_refused(maker: LayoutMaker, tmp_path: Path, kind: bytes) -> None:
    path = tmp_path / "layout.tar"
    with tarfile.open(path, "w") as tar:
        tar.add(maker.folder / "oci-layout", "oci-layout")
        tar.addfile(entry("index.json", kind, link="index.json"))
    with pytest.raises(LayoutError, match=r"index\.json is not a file"), ImageLayout(path) as layout:
        layout.image("latest")


def test_a_pipe_in_the_place_of_a_file_does_not_block(maker: LayoutMaker) -> None:
    os.mkfifo(maker.folder / "index.json")
    with pytest.raises(LayoutError, match=r"index\.json is not a file"), ImageLayout(maker.folder) as layout:
        layout.image("latest")


@pytest.mark.parametrize("compress", [gzip.compress, zstd.compress], ids=["gzip", "zstd"])
def test_broken_compressed_data_is_refused(maker: LayoutMaker, tmp_path: Path, compress: Any) -> None:
    def spoil(data: bytes) -> bytes:
        whole = bytearray(compress(os.urandom(20_000)))
        whole[5_000:5_100] = bytes(100)
        return bytes(whole[:10_000])

    maker.image([[("a", b"1")]], compress=spoil)
    with pytest.raises(LayoutError):
        unpack_image(maker.folder, tmp_path)


async def test_an_image_that_is_not_unpacked_is_not_present(maker: LayoutMaker, tmp_path: Path) -> None:
    maker.image([[("a", b"1")]], "1.0")
    pulls = Pulls(tmp_path)
    assert (await pulls.fault("Never"))[0] == "ErrImageNeverPull"
    await pulls.ensure()
    await pulls.ensure("Never")


async def test_the_accounts_of_an_image_are_not_read_through_a_link_to_this_machine(maker: LayoutMaker, tmp_path: Path) -> None:
    maker.image([[entry("etc/passwd", LINK, link="/etc/passwd")]], "1.0", User="root")
    assert (await Pulls(tmp_path).fault())[1].endswith("the image's user root is not in its /etc/passwd")


# ------------------------------------------------------------------------------------------------------------------- containers


@pytest.mark.embedded
async def test_a_container_of_a_layout_has_its_files_only(client: Client, cluster: ProcessCluster, tmp_path: Path) -> None:
    if detect_isolation(tmp_path) is Isolation.NONE:
        pytest.skip("the kernel grants no mount namespaces")
    maker = LayoutMaker(cluster.folder / "app")
    script = b"echo $COLOR; pwd; cat /data/file; ls /; test -e /usr/share && echo machine; echo lost > /data/file; sleep 1000\n"
    layers: list[list[Entry]] = [
        [*programs("sh", "cat", "ls", "sleep"), ("data/file", b"lower\n")],
        [("data/file", b"upper\n"), ("run.sh", script), ("etc/passwd", PASSWD)],
    ]
    settings: dict[str, Any] = {
        "Entrypoint": ["/bin/sh"],
        "Cmd": ["/run.sh"],
        "Env": ["COLOR=red", "PATH=/bin"],
        "WorkingDir": "/made/folder",
    }
    maker.image(layers, "1.0", **settings)
    maker.image([[entry("dev/sda", tarfile.BLKTYPE)]], "hostile")
    (cluster.folder / "images.yaml").write_text(IMAGES + "  app: {layout: app}\n")
    container = {"name": "main", "image": "app:1.0"}
    spec = {"nodeName": "worker", "terminationGracePeriodSeconds": 0, "containers": [container]}
    await client.create(Pod.from_dict({"metadata": {"name": "app"}, "spec": spec}))
    await wait(client, "app", is_ready)

    async def printed() -> list[str]:
        return (await client.pods.logs("app")).splitlines()

    await until_lines(printed, 6)
    lines = await printed()
    assert lines[:3] == ["red", "/made/folder", "upper"]
    assert set(lines[3:]) >= {"bin", "data", "dev", "etc", "proc", "run.sh", "sys"}
    assert "machine" not in lines
    shown = await client.pods.exec("app", ["cat", "/etc/hosts"])
    assert b"\tapp\n" in shown.stdout
    async with client.pods.exec_stream("app", ["/bin/sh", "-c", "echo terminal"], tty=True) as session:
        assert b"terminal" in b"".join([part.data async for part in session])
    await client.delete(Pod, "app")
    await client.wait_gone(Pod, "app", timeout=30)
    again = {**container, "command": ["/bin/sh", "-c", "cat /data/file"]}
    once = {"nodeName": "worker", "restartPolicy": "Never", "containers": [again]}
    await client.create(Pod.from_dict({"metadata": {"name": "again"}, "spec": once}))
    await wait(client, "again", ended)
    assert await client.pods.logs("again") == "upper\n"

    hostile = {"nodeName": "worker", "containers": [{"name": "main", "image": "app:hostile"}]}
    await client.create(Pod.from_dict({"metadata": {"name": "hostile"}, "spec": hostile}))
    await wait(client, "hostile", lambda status: "ErrImagePull" in json.dumps(status) or "ImagePullBackOff" in json.dumps(status))
    await until(lambda: _failed(client), timeout=30)


async def _failed(client: Client) -> bool:
    return "Failed" in await reasons(client, "hostile")


async def until_lines(read: Any, count: int) -> None:
    for _ in range(600):
        if len(await read()) >= count:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(await read())


@pytest.mark.parametrize("isolation", [one for one in EACH.args[1] if one is not Isolation.NONE])
async def test_the_files_of_an_image_are_the_root_and_stay_as_they_are(tmp_path: Path, isolation: Isolation) -> None:
    root = unpack(tmp_path / "image", [*programs("sh", "ls"), entry("tmp", DIRECTORY, mode=0o1777)])
    before = files_of(root)
    words = ["sh", "-c", "ls /; echo x > /tmp/x; echo x > /new; ls /usr/share 2>/dev/null; pwd"]
    spec = ProcessSpec("image", words, {"PATH": "/bin"}, tmp_path / "scratch", "/work", root=root)
    process = await ProcessRuntime(isolation).start(spec)
    lines = (await output(process)).split()
    assert (set(lines) >= {"bin", "dev", "proc", "work"}, lines[-1], "doc" in lines) == (True, "/work", False)
    await process.close()
    assert files_of(root) == before


def files_of(root: Path) -> set[str]:
    return {str(path) for path in root.rglob("*")}


@pytest.mark.parametrize("name", ["proc", "dev", "sys", "etc"])
async def test_a_link_in_the_place_of_a_folder_that_is_mounted_is_refused(tmp_path: Path, name: str) -> None:
    isolation = detect_isolation(tmp_path)
    if isolation is Isolation.NONE:
        pytest.skip("the kernel grants no mount namespaces")
    (tmp_path / "outside").mkdir()
    root = unpack(tmp_path / "image", [*programs("sh"), entry(name, LINK, link=str(tmp_path / "outside"))])
    with pytest.raises(StartError, match=f"/{name} of the image is not a folder"):
        await ProcessRuntime(isolation).start(ProcessSpec("image", ["sh"], {"PATH": "/bin"}, tmp_path / "scratch", root=root))
    assert list((tmp_path / "outside").iterdir()) == []


def test_the_isolation_none_has_no_images(tmp_path: Path) -> None:
    from kubeloop.kubelet.container_spec import ContainerFolder, CreationError, process_spec

    item = ImageEntry(command=("x",), root=tmp_path)
    with pytest.raises(CreationError, match="need mount namespaces"):
        process_spec(
            "id",
            {"metadata": {"name": "p"}, "spec": {}},
            {"name": "c", "image": "app"},
            item,
            os.environ,
            [],
            ContainerFolder(tmp_path),
            Isolation.NONE,
        )
