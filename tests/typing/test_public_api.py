"""The public API is the stored one, and its parts are described."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from tools import public_api


@pytest.fixture(scope="module")
def now() -> str:
    return public_api.public_api()


def test_the_public_api_is_the_stored_one(now: str) -> None:
    different = public_api.changes(public_api.STORED.read_text(), now)
    assert not different, "\n".join(
        ["the public API has changed:", *different, f"if it shall, run `{public_api.UPDATE}` and list each change in CHANGELOG.md"]
    )


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param("def get(self, kind: type[R]", "def fetch(self, kind", "async def fetch(", id="a renamed method"),
        pytest.param("*, namespace: str", "*, ns: str", "ns: str", id="a renamed argument"),
        pytest.param("NotFound(ApiError)", "NotFound(Exception)", "NotFound(Exception)", id="another base class"),
        pytest.param("    dry_run: bool = False\n", "    dry_run: bool = True\n", "+    dry_run: bool = True", id="another default"),
    ],
)
def test_a_change_is_found(now: str, before: str, after: str, expected: str) -> None:
    assert before in now
    assert any(expected in line for line in public_api.changes(now, now.replace(before, after, 1)))


def test_an_update_rewrites_the_file_and_a_difference_names_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], now: str
) -> None:
    stored = tmp_path / "public_api.txt"
    stored.write_text(now.replace("class NotFound(ApiError)", "class NotFound(Exception)"))
    monkeypatch.setattr(public_api, "STORED", stored)
    monkeypatch.setattr(public_api, "public_api", lambda: now)
    assert public_api.main([]) == 1
    told = capsys.readouterr()
    assert "-class NotFound(Exception)" in told.out
    assert public_api.UPDATE in told.err
    assert public_api.main(["--update"]) == 0
    assert stored.read_text() == now
    assert public_api.main([]) == 0


@pytest.mark.parametrize("package", public_api.PACKAGES)
def test_a_public_package_is_in_the_docs(package: str) -> None:
    page = (public_api.ROOT / "docs" / "api-stability.md").read_text()
    assert f"`{package}`" in page
    assert importlib.import_module(package).__doc__
