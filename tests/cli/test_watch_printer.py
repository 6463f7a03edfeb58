"""How changes are printed: for people, for programs, for xargs."""

from __future__ import annotations

import io
import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest

from kubeloop.cli.watch_view.printer import MOST, key_of, printer_for

JSON = dict[str, Any]
AT = datetime(2026, 1, 1, tzinfo=UTC)


def config(version: int, **data: str) -> JSON:
    managed = [{"manager": f"m{version}"}]
    metadata = {"name": "a", "namespace": "shop", "resourceVersion": str(version), "managedFields": managed}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def printed(capsys: pytest.CaptureFixture[str], output: str, *event: Any, all_fields: bool = False) -> list[str]:
    printer_for(output, lambda tree: f"configmap/{tree['metadata']['name']}", all_fields).event(AT, *event)
    return capsys.readouterr().out.splitlines()


def test_an_object_that_vanished_unseen_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = printed(capsys, "text", "DELETED", None, config(1), "while the watch was down")
    assert line.endswith(" DELETED  shop/a  while the watch was down")


def test_a_change_of_nothing_but_noise_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = printed(capsys, "text", "MODIFIED", config(1), config(2))
    assert line.endswith(" MODIFIED shop/a  nothing but versions and managed fields")


def test_all_fields_are_shown_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "text", "MODIFIED", config(1), config(2), all_fields=True)
    assert lines[1].strip() == "metadata.resourceVersion: 1 -> 2"
    assert len(lines) == 3


def test_of_many_differences_the_rest_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    after = config(2, **{f"k{number}": "v" for number in range(MOST + 7)})
    lines = printed(capsys, "text", "MODIFIED", config(1), after)
    assert len(lines) == 1 + MOST + 1
    assert lines[-1].strip() == "… 7 more differences (--all-fields shows them)"
    assert len(printed(capsys, "text", "MODIFIED", config(1), after, all_fields=True)) > MOST + 7


def test_a_program_gets_type_time_object_and_changes(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = printed(capsys, "json", "MODIFIED", config(1, x="1"), config(2, y="2"))
    found = json.loads(line)
    assert (found["type"], found["time"], found["object"]["data"]) == ("MODIFIED", "2026-01-01T00:00:00+00:00", {"y": "2"})
    assert "managedFields" not in found["object"]["metadata"]
    assert found["changes"] == [{"path": "data.x", "before": "1"}, {"path": "data.y", "after": "2"}]
    (line,) = printed(capsys, "json", "ADDED", None, config(1))
    assert "changes" not in json.loads(line)


def test_xargs_gets_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "name", "MODIFIED", config(1), config(2)) == ["configmap/a"]


@pytest.mark.parametrize(
    ("metadata", "key"),
    [
        pytest.param({"name": "a", "namespace": "shop"}, "shop/a", id="namespace and name"),
        pytest.param({"name": "a"}, "a", id="the name of a cluster-scoped object"),
        pytest.param({"name": "\x1b[2J"}, "\\x1b[2J", id="without what a terminal would obey"),
        pytest.param(None, "", id="nothing where nothing is"),
    ],
)
def test_key(metadata: JSON | None, key: str) -> None:
    assert key_of({"metadata": metadata}) == key


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_of_80_columns_gets_whole_words_and_whole_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    out = _Terminal()
    monkeypatch.setattr("sys.stdout", out)
    message = "containers with unready status: " + " ".join(f"sidecar-with-a-long-name-{number}" for number in range(2))
    before = {"metadata": {"name": "web", "namespace": "shop"}, "status": {"message": "ready"}}
    printer_for("text", str, False).event(AT, "MODIFIED", before, {**before, "status": {"message": message}})
    text = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
    assert max(map(len, text.splitlines())) <= 80
    assert set(text.split()) >= set(message.split())
