"""The picture shows every station, in the order of docs/architecture.md, with bytes that can be so."""

from __future__ import annotations

import io

import pytest
from click.testing import CliRunner
from rich.console import Console

from examples.trace_event.__main__ import main
from examples.trace_event.picture import draw
from examples.trace_event.stations import PATH
from examples.trace_event.tracer import Station, StationVisit, Tracer
from kubeloop.testing import LocalCluster

pytestmark = pytest.mark.embedded

ORDER = [
    "socket", "HTTP", "frame", "projection", "retention", "packing", "head", "reflector", "queue", "store", "handler buffer", "handler",
    "workqueue", "reconcile", "lister", "own write", "write",
]  # fmt: skip


def test_the_program_shows_every_station_in_order(local_cluster: LocalCluster) -> None:
    result = CliRunner().invoke(main, ["--kubeconfig", str(local_cluster.kubeconfig)], catch_exceptions=False)
    assert result.exit_code == 0
    lines = [line for line in result.output.splitlines() if line.startswith("o ")]
    names = [line[2:18].strip() for line in lines]
    assert names == ORDER
    times = [int(line[19:27]) for line in lines]
    assert times == sorted(times)
    sizes = {name: int(line[37:45].replace(",", "")) for name, line in zip(names, lines, strict=True) if line[37:45].strip()}
    assert sizes["socket"] > sizes["HTTP"] > sizes["frame"] > sizes["projection"] >= sizes["retention"] > sizes["packing"]
    assert max(map(len, result.output.splitlines())) <= 80
    assert "\x1b" not in result.output, "no colours where there is no terminal"


def test_a_terminal_gets_colours_and_a_line_that_is_drawn() -> None:
    out = io.StringIO()
    station = PATH[0]
    console = Console(file=out, force_terminal=True, color_system="standard", width=200)
    draw([StationVisit(station, 0.0, 5000, "first"), StationVisit(station, 2000.0, None, "second")], console)
    assert "●" in out.getvalue()
    assert "│" in out.getvalue()
    assert "\x1b[" in out.getvalue()
    assert "5,000" in out.getvalue()


def test_without_a_server_one_line_says_so(tmp_path: object) -> None:
    result = CliRunner().invoke(main, ["--kubeconfig", f"{tmp_path}/none"])
    assert result.exit_code == 1
    assert "trace-event: " in str(result.exception)
    assert "none" in str(result.exception)


def test_only_the_first_call_of_a_station_counts_and_nothing_after_the_block() -> None:
    def work(number: int) -> int:
        return number * 2

    tracer = Tracer([Station("work", "here", work, "return", lambda seen, answer: (answer, f"of {seen['number']}"))])
    work(1)
    with tracer.tracing():
        work(2)
        work(3)
    work(4)
    [passage] = tracer.visits()
    assert (passage.size, passage.words, passage.at) == (4, "of 2", 0.0)
