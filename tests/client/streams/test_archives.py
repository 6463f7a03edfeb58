"""What comes out of a container is not trusted: a server that the test plays sends archives that tar would not."""

from __future__ import annotations

import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kubeloop.client import Client
from kubeloop.client.streams import CopyError
from tests.client.streams.archives import archive_of, entry
from tests.client.streams.peer import SUCCESS, Peer, UpgradeRequest
from tests.client.streams.test_protocols import POD, V5

_LONG = tarfile.TarInfo("././@LongLink")
_LONG.type = tarfile.GNUTYPE_LONGNAME


@asynccontextmanager
async def sending(archive: bytes) -> AsyncIterator[Client]:
    """A client whose server answers every command with this output."""

    async def serve(call: UpgradeRequest) -> None:
        call.accept(V5)
        for at in range(0, len(archive), 50_000):
            call.send(b"\x01" + archive[at : at + 50_000])
            await call.writer.drain()
        call.send(b"\x03" + SUCCESS)
        call.end()
        await call.message()

    async with Peer(serve) as peer:
        yield peer.client


@pytest.mark.parametrize(
    ("archive", "says"),
    [
        pytest.param(archive_of((entry("src/../../evil"), b"x")), "outside the requested path", id="a way up"),
        pytest.param(archive_of((entry("/evil"), b"x")), "outside the requested path", id="another place"),
        pytest.param(archive_of((entry("srcevil"), b"x")), "outside the requested path", id="a name that only begins alike"),
        pytest.param(
            archive_of((entry("src/out", tarfile.SYMTYPE, ".."), b""), (entry("src/there/evil"), b"x")),
            "is there and no folder",
            id="through a link that was there before",
        ),
        pytest.param(archive_of((entry("src/there"), b"x")), "there: Too many levels of symbolic links", id="onto a link"),
        pytest.param(archive_of((entry("src/file"), b"x" * 5000))[:2000], "the archive", id="a file that breaks off"),
        pytest.param(b"no archive" * 100, "the archive cannot be read", id="no archive at all"),
        pytest.param(archive_of((_LONG, b"x" * 6_000_000)), "headers of more than", id="a name without end"),
    ],
)
async def test_an_archive_is_not_trusted(tmp_path: Path, archive: bytes, says: str) -> None:
    (tmp_path / "back").mkdir()
    (tmp_path / "back" / "there").symlink_to(tmp_path)
    async with sending(archive) as client:
        with pytest.raises(CopyError, match=says):
            await client.pods.copy_from(POD, "src", tmp_path / "back")
    assert not list(tmp_path.rglob("evil"))


async def test_an_entry_that_is_no_file_is_left_out_and_named(tmp_path: Path) -> None:
    archive = archive_of(
        (entry("src/file"), b"x"),
        (entry("src/link", tarfile.SYMTYPE, "../.."), b""),
        (entry("src/none", tarfile.LNKTYPE, "src/nothing"), b""),
        (entry("src/device", tarfile.CHRTYPE), b""),
        # What would have been written through the link stays inside.
        (entry("src/link/file"), b"y"),
    )
    async with sending(archive) as client:
        result = await client.pods.copy_from(POD, "src", tmp_path / "back")
    assert result.skipped == (
        "src/link: a symbolic link to ../..",
        "src/none: a link to src/nothing, which was not copied",
        "src/device: neither file, folder nor link",
    )
    found = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    assert found == {"back/file": "x", "back/link/file": "y"}


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        pytest.param("/etc/app/", "etc/app/x", id="an absolute path, of which tar leaves out the beginning"),
        pytest.param("../app", "app/x", id="a path from above"),
        pytest.param("./app", "./app/x", id="a path from here"),
        pytest.param(".", "./x", id="here"),
        pytest.param("/", "x", id="everything"),
    ],
)
async def test_names_in_an_archive_are_what_tar_makes_of_what_was_asked_for(tmp_path: Path, asked: str, name: str) -> None:
    async with sending(archive_of((entry(name), b"content"))) as client:
        await client.pods.copy_from(POD, asked, tmp_path / "back")
    assert (tmp_path / "back" / "x").read_text() == "content"
