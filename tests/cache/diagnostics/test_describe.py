"""What informers say of themselves to people: as text, as a table, in a notebook, and as JSON."""

from __future__ import annotations

import asyncio
import html
import io
import json
import os
import random
import re
import signal
import stat
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from rich.console import Console

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.cache import InformerEvent, InformerFactory, MulticlusterInformerFactory
from kubeloop.cache.diagnostics.describe import duration, size
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.meta import Forbidden
from kubeloop.timing import FakeClock
from tests.cache.source import Source, status, until


def informers_of(api: Client, clock: FakeClock) -> InformerFactory:
    return InformerFactory(api, clock=clock, rng=random.Random(1))


async def test_one_row_for_each_informer_says_what_it_has_and_whether_it_works(source: Source, api: Client, clock: FakeClock) -> None:
    source.put("a", x="1")
    go = asyncio.Event()

    async def stuck(event: InformerEvent[ConfigMap]) -> None:
        await go.wait()

    async with informers_of(api, clock) as informers:
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        maps.on_event(added=print, name="fast")
        maps.on_event(added=stuck, name="stuck")
        await until(lambda: source.watches == 1 and maps.stats.handlers[1].key)
        source.put("b")
        await until(lambda: maps.stats.objects == 2)
        await clock.advance(15)
        text = str(informers.describe())
        heading, row, *details = text.splitlines()
        assert heading.split() == ["KIND", "OBJECTS", "LAG", "STATE"]
        assert row.split() == ["configmaps", "2", "15", "s", "synced"]
        assert re.fullmatch(r"  scope all; stored \S+ B of \S+ B \(\S+x\); events 2; lists 2 \(1 fallback\);", details[0])
        assert details[1:] == ["  restarts 0", "  handlers: fast, stuck (1 wait, oldest 15 s, at default/a for 15 s)"]
        go.set()


async def test_an_informer_that_cannot_sync_says_why(source: Source, api: Client, clock: FakeClock) -> None:
    refused = status(403, "Forbidden", "configmaps is forbidden")
    source.list_faults += [refused] * 3
    source.watch_faults += [refused] * 3
    async with informers_of(api, clock) as informers:
        maps = informers.for_kind(ConfigMap, label_selector="app=web", namespace=ALL_NAMESPACES)
        await until(lambda: isinstance(maps.failure, Forbidden))
        informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        description = informers.describe()
        text = str(description)
        assert "scope all (app=web)" in text
        assert text.splitlines()[1].endswith("  not synced: Forbidden [1]")
        assert text.count("[1]") == 2, "in the row of the first informer, and before its note"
        note = f"[1] {maps.description}: {maps.failure}"
        assert " ".join(text.split()).endswith(note)
        assert "configmaps is forbidden" in note
        written = io.StringIO()
        Console(file=written, width=200).print(description)
        assert note in written.getvalue().replace("\n", " ")
        assert description._repr_html_().endswith(f"</table><p>{html.escape(note)}</p>")
        assert informers.dump()["informers"][0]["feeds"][0]["failure"].startswith("Forbidden")


async def test_rich_prints_it_as_a_table_and_notebooks_as_html(api: Client, clock: FakeClock) -> None:
    informers = informers_of(api, clock)
    informers.for_kind(ConfigMap, namespace="shop")
    description = informers.describe()
    written = io.StringIO()
    Console(file=written, width=200).print(description)
    assert "configmaps" in written.getvalue()
    assert "not synced" in written.getvalue()
    page = description._repr_html_()
    assert page.startswith("<table>")
    assert "<td>configmaps</td><td>shop</td>" in page
    assert page.count("<tr>") == 2


LONG = "a-team-with-a-long-name"


@pytest.mark.parametrize("terminal", [pytest.param(True, id="on a terminal"), pytest.param(False, id="in a pipe")])
async def test_80_columns_are_enough_and_no_name_is_cut(api: Client, clock: FakeClock, terminal: bool) -> None:
    informers = informers_of(api, clock)
    selection = ",".join(f"example.com/{name}=yes" for name in ("first", "second", "third", "fourth"))
    watched = informers.for_kind(ConfigMap, namespace=["shop", "warehouse", LONG], label_selector=selection)
    for number in range(6):
        watched.on_event(added=print, name=f"controller of {LONG}-{number}")
    written = io.StringIO()
    Console(file=written, width=80, force_terminal=terminal, color_system=None).print(informers.describe())
    text = written.getvalue() if terminal else str(informers.describe())
    assert max(map(len, text.splitlines())) <= 80
    words = text.replace(",", "").split()
    assert {"KIND", "OBJECTS", "LAG", "STATE", "configmaps", "warehouse", LONG} <= set(words)
    assert [f"{LONG}-{number}" in " ".join(words) for number in range(6)] == [True] * 6
    assert "…" not in text
    assert not set("─│┃━") & set(text)


async def test_what_comes_from_outside_is_escaped_in_html(api: Client, clock: FakeClock) -> None:
    informers = informers_of(api, clock)
    informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES).on_event(added=print, name="<script>alert(1)</script>")
    page = informers.describe()._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


async def test_no_informers_are_a_table_without_rows(api: Client, clock: FakeClock) -> None:
    assert str(informers_of(api, clock).describe()).startswith("KIND  OBJECTS")
    assert informers_of(api, clock).dump() == {"informers": []}


async def test_several_clusters_are_one_table(api: Client, clock: FakeClock) -> None:
    both = MulticlusterInformerFactory({"east": api, "west": api}, clock=clock)
    both.for_kind(ConfigMap)
    heading, *rows = str(both.describe()).splitlines()
    assert heading.startswith("CLUSTER/KIND ")
    assert [row.split()[0] for row in rows if row[0] != " "] == ["east/configmaps", "west/configmaps"]
    registry = CollectorRegistry()
    async with both:
        both.metrics(registry)
        assert b'cluster="west"' in generate_latest(registry)
    assert generate_latest(registry) == b""


async def test_a_dump_is_json_with_all_numbers_and_without_contents(source: Source, api: Client, clock: FakeClock) -> None:
    source.put("a", password="hunter2")
    async with informers_of(api, clock) as informers:
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        maps.on_event(added=print, name="web")
        await until(lambda: source.watches == 1)
        text = json.dumps(informers.dump())
        (found,) = json.loads(text)["informers"]
        assert (found["resource"], found["objects"], found["synced"], found["events"]) == ("configmaps", 1, True, 1)
        assert found["feeds"][0]["lists"]["first"] == 1
        assert found["handlers"][0]["name"] == "web"
        assert "hunter2" not in text


async def test_a_signal_writes_a_dump_only_where_that_was_asked_for(
    api: Client, clock: FakeClock, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "dump.json"
    before = signal.getsignal(signal.SIGUSR1)
    async with informers_of(api, clock) as informers:
        informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        informers.dump_on_signal(signal.SIGUSR1, file)
        os.kill(os.getpid(), signal.SIGUSR1)
        await until(file.exists)
        assert json.loads(file.read_text())["informers"][0]["kind"] == "ConfigMap"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert [each.name for each in tmp_path.iterdir()] == ["dump.json"]
        informers.dump_on_signal(signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGUSR1)
        written = ""
        while not written:
            await asyncio.sleep(0.001)
            written = capsys.readouterr().err
        assert json.loads(written)["cluster"] == "test"
    assert signal.getsignal(signal.SIGUSR1) == before


async def test_a_dump_that_cannot_be_written_is_logged_and_nothing_else_happens(
    api: Client, clock: FakeClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with informers_of(api, clock) as informers:
        informers.dump_on_signal(signal.SIGUSR1, tmp_path / "nosuch" / "dump.json")
        os.kill(os.getpid(), signal.SIGUSR1)
        await until(lambda: "cannot write the dump" in caplog.text)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (150 * 1024, "150 KiB"),
        (5 << 20, "5.0 MiB"),
        (3 << 30, "3.0 GiB"),
        (9 << 50, "9216.0 TiB"),
    ],
)
def test_bytes_in_words(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(("seconds", "text"), [(0.31, "0.3 s"), (12.4, "12 s"), (119, "119 s"), (300, "5 min"), (10800, "3 h")])
def test_seconds_in_words(seconds: float, text: str) -> None:
    assert duration(seconds) == text
