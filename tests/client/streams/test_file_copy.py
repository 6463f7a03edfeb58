"""Files and folders to and from containers, by way of either server; kubectl copies the same beside us."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
from pathlib import Path

import pytest

from kubeloop.client import Client
from kubeloop.client.streams import CopyError, CopyProgress
from kubeloop.client.streams.archives import Packing
from kubeloop.meta import TransportError
from tests.apiserver.kubelet.scripted import Terminal
from tests.client.streams.archives import archive_of, entry
from tests.client.streams.conftest import Cluster, ScriptedKubelet

pytestmark = pytest.mark.server


@pytest.fixture
async def pod(cluster: Cluster, kubelet: ScriptedKubelet) -> str:
    await cluster.pod("web", await cluster.node(kubelet))
    return "web"


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    """Where commands in the container run."""
    return tmp_path / "container"


def _tree(root: Path) -> dict[str, str | None]:
    """Files with their content, links with what they lead to, empty folders with None."""
    found: dict[str, str | None] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        elif path.is_file():
            found[name] = path.read_text()
        elif not any(path.iterdir()):
            found[name] = None
    return found


def _folder(path: Path) -> Path:
    (path / "deep" / "er").mkdir(parents=True)
    (path / "empty").mkdir()
    (path / "one.txt").write_text("one\n")
    (path / "deep" / "er" / ("long" * 40 + ".txt")).write_text("x" * 5000)
    (path / "deep" / "none").write_text("")
    (path / "runs.sh").write_text("#!/bin/sh\n")
    (path / "runs.sh").chmod(0o755)
    return path


async def test_a_folder_goes_in_and_out_as_it_is(client: Client, cluster: Cluster, pod: str, inside: Path, tmp_path: Path) -> None:
    source = _folder(tmp_path / "source")
    result = await client.pods.copy_to(pod, source, "there")
    assert (result.files, result.bytes, result.skipped) == (4, 4 + 5000 + 10, ())
    assert _tree(inside / "there") == _tree(source)
    assert os.access(inside / "there" / "runs.sh", os.X_OK)
    back = await client.pods.copy_from(pod, "there", tmp_path / "back")
    assert (back.files, back.bytes, back.skipped) == (4, 4 + 5000 + 10, ())
    assert _tree(tmp_path / "back") == _tree(source)
    assert os.access(tmp_path / "back" / "runs.sh", os.X_OK)
    assert (await cluster.kubectl("cp", "web:there", str(tmp_path / "theirs"))).code == 0
    assert _tree(tmp_path / "theirs") == _tree(tmp_path / "back")


async def test_what_goes_into_a_folder_keeps_its_name(client: Client, cluster: Cluster, pod: str, inside: Path, tmp_path: Path) -> None:
    (inside / "folder").mkdir()
    (tmp_path / "file.txt").write_text("content")
    await client.pods.copy_to(pod, tmp_path / "file.txt", "folder")
    await client.pods.copy_to(pod, tmp_path / "file.txt", "renamed.txt")
    (inside / "theirs").mkdir()
    assert (await cluster.kubectl("cp", str(tmp_path / "file.txt"), "web:theirs")).code == 0
    assert _tree(inside / "folder") == _tree(inside / "theirs") == {"file.txt": "content"}
    assert (inside / "renamed.txt").read_text() == "content"
    await client.pods.copy_from(pod, "folder/file.txt", tmp_path / "new" / "name.txt")
    assert (tmp_path / "new" / "name.txt").read_text() == "content"
    with pytest.raises(CopyError, match=r"new is a folder; name the file that is to be written, for example .*new/file.txt"):
        await client.pods.copy_from(pod, "folder/file.txt", tmp_path / "new")


async def test_links_go_in_as_links_and_are_left_out_on_the_way_back(
    client: Client, cluster: Cluster, pod: str, inside: Path, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "file").write_text("content")
    (source / "link").symlink_to("file")
    (source / "hard").hardlink_to(source / "file")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(source / "socket"))
        result = await client.pods.copy_to(pod, source, "there")
    assert result.skipped == (f"{source / 'socket'}: neither file, folder nor link",)
    assert _tree(inside / "there") == {"file": "content", "hard": "content", "link": "-> file"}
    (inside / "there" / "second").hardlink_to(inside / "there" / "file")
    back = await client.pods.copy_from(pod, "there", tmp_path / "back")
    assert back.skipped == ("there/link: a symbolic link to file",)
    assert _tree(tmp_path / "back") == {"file": "content", "hard": "content", "second": "content"}


async def test_progress_is_reported_to_the_last_byte(client: Client, pod: str, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * 3_000_001)
    reports: list[CopyProgress] = []
    await client.pods.copy_to(pod, tmp_path / "big", "big", progress=reports.append)
    assert reports[-1] == CopyProgress("big", 3_000_001, 3_000_001, 3_000_001)
    assert [one.done for one in reports] == sorted(one.done for one in reports)
    reports.clear()
    await client.pods.copy_from(pod, "big", tmp_path / "back", progress=reports.append)
    assert reports[-1] == CopyProgress("back", 3_000_001, 3_000_001, 3_000_001)
    assert (tmp_path / "back").read_bytes() == b"x" * 3_000_001


async def test_what_progress_raises_ends_the_copy(client: Client, pod: str, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * 3_000_000)

    def refuse(progress: CopyProgress) -> None:
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        await client.pods.copy_to(pod, tmp_path / "big", "big", progress=refuse)
    await client.pods.copy_to(pod, tmp_path / "big", "big")
    with pytest.raises(LookupError, match="enough"):
        await client.pods.copy_from(pod, "big", tmp_path / "back", progress=refuse)


async def test_tars_own_complaint_is_the_error(client: Client, pod: str, inside: Path, tmp_path: Path) -> None:
    with pytest.raises(CopyError, match=r'copy: exec in container "main" of pod "web" .* exit code 2: tar: none: Cannot stat'):
        await client.pods.copy_from(pod, "none", tmp_path / "back")
    (tmp_path / "file").write_text("x" * 1_000_000)
    with pytest.raises(CopyError, match=r"exit code 2: tar: no/such: Cannot open"):
        await client.pods.copy_to(pod, tmp_path / "file", "no/such/file")
    with pytest.raises(CopyError, match="none is not there"):
        await client.pods.copy_to(pod, tmp_path / "none", "x")


async def test_a_file_that_changes_while_it_is_copied_is_named(client: Client, pod: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 1_000_000)

    def cut(progress: CopyProgress) -> None:
        os.truncate(tmp_path / "file", 600_000)

    with pytest.raises(CopyError, match=r"file became shorter while it was copied: \d+ of 1000000 bytes"):
        await client.pods.copy_to(pod, tmp_path / "file", "there", progress=cut)


async def test_a_cancelled_copy_writes_no_more(client: Client, kubelet: ScriptedKubelet, pod: str, tmp_path: Path) -> None:
    begun = asyncio.Event()
    endless = entry("src")
    endless.size = 1 << 40

    async def command(words: list[str], terminal: Terminal) -> int:
        await terminal.write("stdout", endless.tobuf())
        while True:
            await terminal.write("stdout", bytes(30_000))
            begun.set()

    kubelet.command = command
    copying = asyncio.ensure_future(client.pods.copy_from(pod, "src", tmp_path / "back"))
    async with asyncio.timeout(30):
        await begun.wait()
        copying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await copying
    (tmp_path / "back").unlink(missing_ok=True)
    await client.pods.logs(pod)
    assert not (tmp_path / "back").exists()


async def test_a_connection_that_breaks_off_is_the_error(client: Client, kubelet: ScriptedKubelet, pod: str, tmp_path: Path) -> None:
    async def command(words: list[str], terminal: Terminal) -> int:
        await terminal.write("stdout", archive_of((entry("src"), b"x" * 100_000))[:50_000])
        await client.close()
        return 0

    kubelet.command = command
    with pytest.raises(TransportError, match='pod "web"'):
        await client.pods.copy_from(pod, "src", tmp_path / "back")


async def test_a_name_that_looks_like_an_option_is_a_name(client: Client, pod: str, inside: Path, tmp_path: Path) -> None:
    (inside / "--version").write_text("1")
    result = await client.pods.copy_from(pod, "--version", tmp_path / "back")
    assert (result.files, (tmp_path / "back").read_text()) == (1, "1")


async def test_no_file_stays_open_whenever_its_reading_is_cancelled(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"x" * 1000)
    for turns in range(20):
        pieces = Packing(tmp_path, "made").pieces()
        await anext(pieces)  # the header; next is the content
        reading = asyncio.ensure_future(anext(pieces))
        for _ in range(turns):
            await asyncio.sleep(0)
        reading.cancel()
        await asyncio.wait((reading,))
        await pieces.aclose()
    gc.collect()  # a file that was left open would be an error here
