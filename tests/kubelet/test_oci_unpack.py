"""Layers of images are unpacked into a folder, and hostile layers are refused."""

from __future__ import annotations

import io
import stat
import tarfile
from pathlib import Path

import pytest

from kubeloop.kubelet.oci_layout import LayoutError
from kubeloop.kubelet.oci_unpack import LayerUnpacker, UnpackOptions
from tests.kubelet.layouts import Entry, archive, entry, files, unpack

DIRECTORY, LINK, HARD = tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        pytest.param([[("a/b/c", b"x")]], {"a": "/", "a/b": "/", "a/b/c": "x"}, id="folders that the layer does not name are made"),
        pytest.param([[("./a", b"1")], [("a", b"2")]], {"a": "2"}, id="a higher layer replaces a file"),
        pytest.param([[("a/x", b"1")], [("a", b"2")]], {"a": "2"}, id="a file replaces a folder"),
        pytest.param(
            [[("a", b"1")], [("a/x", b"2")][:0], [entry("a", DIRECTORY), ("a/x", b"2")]], {"a": "/", "a/x": "2"}, id="and a folder a file"
        ),
        pytest.param([[("a/x", b"1"), ("a/y", b"2")], [entry("a/.wh.x")]], {"a": "/", "a/y": "2"}, id="a whiteout removes a file"),
        pytest.param([[("a/x", b"1")], [entry(".wh.a")]], {}, id="or a folder"),
        pytest.param([[("a", b"1")], [entry(".wh.none")]], {"a": "1"}, id="or nothing"),
        pytest.param(
            [[("a/x", b"1"), ("a/d/e", b"1")], [("a/y", b"2"), entry("a/.wh..wh..opq"), ("a/z", b"3")]],
            {"a": "/", "a/y": "2", "a/z": "3"},
            id="an opaque folder hides lower files",
        ),
        pytest.param([[("a/x", b"1")], [("a/x", b"2"), entry("a/.wh.x")]], {"a": "/", "a/x": "2"}, id="a whiteout spares its own layer"),
        pytest.param(
            [[entry("lib", LINK, link="usr/lib"), entry("usr/lib", DIRECTORY)], [("lib/x", b"1")]],
            {"lib": "-> usr/lib", "usr": "/", "usr/lib": "/", "usr/lib/x": "1"},
            id="a path leads through a link of the image",
        ),
        pytest.param(
            [[entry("usr/lib", DIRECTORY), entry("a/l", LINK, link="/usr/lib")], [("a/l/x", b"1")]],
            {"a": "/", "a/l": "-> /usr/lib", "usr": "/", "usr/lib": "/", "usr/lib/x": "1"},
            id="which starts at its root",
        ),
        pytest.param([[("x", b"1"), entry("y", HARD, link="x")]], {"x": "1", "y": "1"}, id="a hard link is the same file"),
        pytest.param(
            [[("x", b"1"), entry("y", LINK, link="x")], [("y", b"2")]], {"x": "1", "y": "2"}, id="a file replaces a link, not its target"
        ),
    ],
)
def test_layers_are_applied(tmp_path: Path, layers: list[list[Entry]], expected: dict[str, str]) -> None:
    assert files(unpack(tmp_path / "root", *layers)) == expected


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        pytest.param([("../out", b"x")], "leads out of the image", id="a path with two dots"),
        pytest.param([("a/../../out", b"x")], "leads out of the image", id="also inside"),
        pytest.param([("/out", b"x")], "not relative", id="an absolute path"),
        pytest.param([entry("a", LINK, link="../out")], "leads out of the image", id="a link out of the root"),
        pytest.param([entry("d/e/a", LINK, link="../../../out")], "leads out of the image", id="also from a folder"),
        pytest.param([entry("a", LINK, link="/../out")], "leads out of the image", id="an absolute one"),
        pytest.param([entry("a", HARD, link="../out")], "leads out of the image", id="a hard link out of the root"),
        pytest.param([entry("a", HARD, link="/etc/passwd")], "not relative", id="an absolute hard link"),
        pytest.param([entry("a", HARD, link="none")], "not a file of the image", id="a hard link to nothing"),
        pytest.param(
            [entry("l", LINK, link="/etc"), entry("a", HARD, link="l/passwd")], "not a folder of the image", id="a hard link through a link"
        ),
        pytest.param([entry("d", DIRECTORY), entry("a", HARD, link="d")], "not a file of the image", id="a hard link to a folder"),
        pytest.param(
            [entry("a", LINK, link="b"), entry("b", LINK, link="a"), ("a/x", b"")], "too many symbolic links", id="links in a circle"
        ),
        pytest.param([("a", b""), ("a/x", b"")], "not a folder of the image", id="a file as a folder"),
        pytest.param([entry("sda", tarfile.BLKTYPE)], "a device file", id="a block device"),
        pytest.param([entry("mem", tarfile.CHRTYPE)], "a device file", id="a character device"),
        pytest.param([entry("pipe", tarfile.FIFOTYPE)], "a named pipe", id="a named pipe"),
        pytest.param([entry("su", mode=0o4755)], "set-user-ID", id="a set-user-ID bit"),
        pytest.param([entry("sg", mode=0o2755)], "set-group-ID", id="a set-group-ID bit"),
        pytest.param([entry(".wh...")], "removes no file", id="a whiteout of the folder above"),
        pytest.param([entry(".wh.")], "removes no file", id="a whiteout without a name"),
        pytest.param([("x" * 300, b"")], "name too long", id="a name that is too long"),
        pytest.param([("a", b""), ("b", b""), ("c", b""), ("d", b"")], "more than 3 files", id="too many files"),
        pytest.param([("a", b"x" * 2000)], "more than 1000 bytes", id="too many bytes"),
    ],
)
def test_a_hostile_layer_is_refused(tmp_path: Path, layer: list[Entry], message: str) -> None:
    with pytest.raises(LayoutError, match=f"(?i){message}"):
        unpack(tmp_path / "root", layer, max_entries=3, max_bytes=1000)
    assert [path.name for path in tmp_path.iterdir()] == ["root"]


def test_a_link_in_a_lower_layer_does_not_lead_writes_or_whiteouts_out_of_the_root(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/kept").write_text("kept")
    lower: list[Entry] = [entry("l", LINK, link=str(tmp_path / "outside"))]
    root = unpack(tmp_path / "root", lower, [("l/new", b"x"), entry("l/.wh.kept"), entry("l/.wh..wh..opq")])
    assert files(tmp_path / "outside") == {"kept": "kept"}
    assert (root / str(tmp_path / "outside").lstrip("/") / "new").read_text() == "x"


def test_modes_of_folders_are_set_at_the_end_and_never_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir(mode=0o700)
    lower: list[Entry] = [entry("d", DIRECTORY, mode=0o555), ("d/x", b"1"), entry("e", DIRECTORY, mode=0o777)]
    root = unpack(tmp_path / "root", lower, [entry("e", LINK, link=str(tmp_path / "outside"))])
    assert stat.S_IMODE((root / "d").stat().st_mode) & 0o555 == 0o555
    assert stat.S_IMODE((tmp_path / "outside").stat().st_mode) == 0o700


def test_set_user_id_bits_are_removed_on_request(tmp_path: Path) -> None:
    root = unpack(tmp_path / "root", [entry("su", mode=0o4755)], strip_setuid=True)
    assert stat.S_IMODE((root / "su").stat().st_mode) == 0o755


def test_a_layer_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    for data in (b"nonsense" * 200, archive([("a", b"x" * 5000)])[:2000]):
        with pytest.raises(LayoutError):
            LayerUnpacker(tmp_path, UnpackOptions()).apply(io.BytesIO(data))


def test_a_header_that_would_fill_the_memory_is_refused(tmp_path: Path) -> None:
    header = entry("pax", tarfile.XHDTYPE)
    header.size = 1 << 40
    with pytest.raises(LayoutError, match="a header of 1099511627776 bytes"):
        LayerUnpacker(tmp_path, UnpackOptions()).apply(io.BytesIO(header.tobuf(tarfile.GNU_FORMAT)))
