"""Golden files: omitted fields, the text of a difference, and the creation of a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.meta import ObjectMeta, OwnerReference
from kubeloop.testing import HandlerServer, assert_golden

pytestmark = pytest.mark.embedded


def owned(name: str, **data: str) -> ConfigMap:
    owner = OwnerReference(api_version="v1", kind="Secret", name="s", uid="1-2-3", controller=True)
    return ConfigMap(metadata=ObjectMeta(name=name, labels={"app": "x"}, owner_references=[owner]), data=data)


async def test_what_the_server_sets_is_left_out(tmp_path: Path) -> None:
    async with HandlerServer() as server:
        client = server.client()
        made = await client.create(owned("a", since="2026-01-01T00:00:00Z", where="in default"))
    assert_golden(made, tmp_path / "a.yaml", replace={"default": "<namespace>"}, update=True)
    assert (tmp_path / "a.yaml").read_text() == (
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  labels:\n    app: x\n  namespace: <namespace>\n  ownerReferences:\n"
        "  - apiVersion: v1\n    kind: Secret\n    name: s\n    controller: true\ndata:\n  since: <time>\n  where: in <namespace>\n"
    )
    assert_golden(made, tmp_path / "a.yaml", replace={"default": "<namespace>"})


def test_a_difference_is_shown_with_the_way_to_accept_it(tmp_path: Path) -> None:
    assert_golden([owned("a", k="1"), owned("b")], tmp_path / "x" / "both.yaml", update=True)
    with pytest.raises(AssertionError) as failed:
        assert_golden([owned("a", k="2"), owned("b")], tmp_path / "x" / "both.yaml")
    assert '-  k: "1"' in str(failed.value)
    assert '+  k: "2"' in str(failed.value)
    assert "pytest --update-golden" in str(failed.value)


def test_a_path_that_is_dropped_is_not_compared(tmp_path: Path) -> None:
    assert_golden(owned("a", k="1"), tmp_path / "a.yaml", drop=["data", "metadata.labels"], update=True)
    assert_golden(owned("a", k="2"), tmp_path / "a.yaml", drop=["data", "metadata.labels", "nothing.at.all"])


def test_a_missing_file_is_a_failure_that_shows_what_would_be_in_it(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"no such file yet; .*--update-golden\n(.|\n)*name: a"):
        assert_golden(owned("a"), tmp_path / "none.yaml")
    assert not (tmp_path / "none.yaml").exists()
