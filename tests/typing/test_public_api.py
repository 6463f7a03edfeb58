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
        pytest.param(
            "def copy_to(self, target", "def upload(self, target", "def upload(", id="a method of a class that a property returns"
        ),
    ],
)
def test_a_change_is_found(now: str, before: str, after: str, expected: str) -> None:
    assert before in now
    assert any(expected in line for line in public_api.changes(now, now.replace(before, after, 1)))


def test_classes_that_public_names_return_are_described_without_their_constructors(now: str) -> None:
    returned = now.partition(f"[{public_api.RETURNED}]")[2]
    assert all(f"\nclass {name}()\n" in returned for name in ("PodVerbs", "CertificateVerbs", "ServiceAccountVerbs"))
    assert "__init__" not in returned
    assert "class _" not in returned
    assert "class Pod(" not in returned, "kinds of kubeloop.api change as the API of Kubernetes does"


def test_the_constructor_of_a_class_that_only_kubeloop_creates_is_not_public(now: str) -> None:
    described = now.partition("\nclass RunnableContext()\n")[2].partition("\nclass ")[0]
    assert "__init__" not in described
    assert "    client: Client" in described


def test_an_update_rewrites_the_file_and_a_difference_names_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], now: str
) -> None:
    stored = tmp_path / "public_api.txt"
    stored.write_text(now.replace("class NotFound(ApiError)", "class NotFound(Exception)"))
    monkeypatch.setattr(public_api, "STORED", stored)
    monkeypatch.setattr(public_api, "public_api", lambda: now)
    assert public_api.main([]) == 1
    output = capsys.readouterr()
    assert "-class NotFound(Exception)" in output.out
    assert public_api.UPDATE in output.err
    assert public_api.main(["--update"]) == 0
    assert stored.read_text() == now
    assert public_api.main([]) == 0


@pytest.mark.parametrize("package", public_api.PACKAGES)
def test_a_public_package_is_in_the_docs(package: str) -> None:
    page = (public_api.ROOT / "docs" / "api-stability.md").read_text()
    assert f"`{package}`" in page
    assert importlib.import_module(package).__doc__
