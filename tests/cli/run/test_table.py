"""What ``kubeloop run`` draws of a board, and what it says of it where there is no terminal."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from kubeloop.cli.run.board import ControllerRow, DashboardSnapshot, InformerRow
from kubeloop.cli.run.live_view import Lines, begun, figures, table

WEB = ControllerRow("web", 2, waiting=3, working=2, later=1, reconciles=1234, per_second=12.34, errors=2)
FAILING = replace(WEB, failing="shop/a", last_error="too\n  large \x1b[2J")
BOARD = DashboardSnapshot(
    "web.app:controllers",
    "https://127.0.0.1:6443",
    "running",
    75.0,
    (FAILING, ControllerRow("backup")),
    (InformerRow("webs.example.com", 40), InformerRow("secrets", 0, synced=False, why="secrets: Forbidden: cannot list")),
)

DRAWN = """\
web.app:controllers on https://127.0.0.1:6443: running 1 min 15 s

CONTROLLER  WORKERS  WAITING  WORKING  LATER  RECONCILES  PER S  ERRORS
web               2        3        2      1        1234   12.3       2
backup            1        0        0      0           0    0.0       0

INFORMER          OBJECTS  STATE
webs.example.com       40  synced
secrets                 0  not synced
  secrets: Forbidden: cannot list

last error web shop/a: too large \\x1b[2J
"""


def drawn(board: DashboardSnapshot, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(table(board))
    assert isinstance(console.file, io.StringIO)
    return "".join(f"{line.rstrip()}\n" for line in console.file.getvalue().splitlines())


def test_a_table_of_controllers_informers_and_last_errors_with_nothing_that_a_terminal_obeys() -> None:
    assert drawn(BOARD) == DRAWN


def test_in_80_columns_long_names_stay_whole() -> None:
    name = "certificate-signing-request-approvals"
    kind = "verylongresourcenames.with.a.group.of.a.company.example.com (in namespaces shop, warehouse)"
    row = replace(FAILING, name=name, last_error="cannot reach the registry " * 8)
    text = drawn(replace(BOARD, controllers=(row, WEB), informers=(InformerRow(kind, 7, synced=False, why="it is forbidden " * 9),)))
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert kind.split()[0] in text.split()
    assert name in lines
    assert "…" not in text
    assert set(text.split()) >= {"registry", "forbidden", name}


def test_before_anything_is_known_there_is_the_head_line_only() -> None:
    assert drawn(DashboardSnapshot("web:app", "https://x", "starting", 0.4)) == "web:app on https://x: starting 0 s\n"


@pytest.mark.parametrize(
    ("seconds", "message"),
    [
        pytest.param(59.9, "59 s", id="seconds below a minute"),
        pytest.param(3599.0, "59 min 59 s", id="minutes and seconds below an hour"),
        pytest.param(90_000.0, "25 h 0 min", id="hours and minutes from then on"),
    ],
)
def test_time_is_written_as_people_say_it(seconds: float, message: str) -> None:
    assert drawn(DashboardSnapshot("a", "b", "running", seconds)) == f"a on b: running {message}\n"


def test_one_line_says_that_it_runs_and_one_how_a_controller_is() -> None:
    assert begun(BOARD) == "running on https://127.0.0.1:6443: web, backup; 2 informers synced, 40 objects"
    queue = "3 waiting, 2 working, 1 later"
    assert figures(FAILING) == (f"web: 1234 reconciles (12.3/s), {queue}, 2 errors, the last one of shop/a: too large \\x1b[2J")
    assert figures(ControllerRow("backup")) == "backup: 0 reconciles (0.0/s), 0 waiting, 0 working, 0 later, no error"


def test_without_a_terminal_lines_tell_of_changes_only_and_of_one_controller_every_two_seconds_at_most() -> None:
    lines = Lines()
    idle = ControllerRow("web")
    board = DashboardSnapshot("web:app", "https://x", "starting", 0.0, (idle,))
    assert lines.lines(board) == []
    assert lines.lines(replace(board, state="running", seconds=1.0)) == ["running on https://x: web; 0 informers synced, 0 objects"]
    busy = replace(board, state="running", controllers=(WEB, idle))
    assert lines.lines(replace(busy, seconds=1.1)) == [figures(WEB)]
    more = replace(WEB, reconciles=1235)
    assert lines.lines(replace(busy, seconds=3.0, controllers=(more,))) == []
    assert lines.lines(replace(busy, seconds=3.1, controllers=(more,))) == [figures(more)]
    assert lines.lines(replace(busy, seconds=9.0, controllers=(more,))) == []
