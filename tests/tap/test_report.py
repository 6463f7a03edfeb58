"""The page of a recording: its data, and how it works in a real browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeloop.cli.tap import report_differences
from kubeloop.tap.recording import read_recording
from kubeloop.tap.report.page import ReportTimeline, embedded, report_page
from tests.tap.chromium import Page, browser, chromium_binary
from tests.tap.recordings import controller_recording, entry, frame, har, pod, write

PODS = "/api/v1/namespaces/shop/pods"
EVIL = '</script><script>document.title="owned"</script><img src=x onerror="document.title=1">\u2028&amp;'


def data_of(folder: Path, content: dict[str, Any]) -> dict[str, Any]:
    data: dict[str, Any] = ReportTimeline(read_recording(write(folder / "run.har", content)), report_differences).data()
    return data


def test_rows_are_requests_and_events_in_the_order_of_their_times(tmp_path: Path) -> None:
    data = data_of(tmp_path, controller_recording(4))
    assert [(row["v"], row["s"]) for row in data["rows"]] == [
        ("GET", "/api"),
        ("LIST", "pods -n shop"),
        ("FAILED", "connection to 127.0.0.1:6443"),
        ("WATCH", "pods -n shop"),
        ("GET", "deployments.apps web -n shop"),
        ("PATCH", "deployments.apps web -n shop"),
        ("MODIFIED", "shop/web-0"),
        ("MODIFIED", "shop/web-1"),
        ("MODIFIED", "shop/web-2"),
        ("MODIFIED", "shop/web-0"),
        ("BOOKMARK", ""),
        ("UPDATE", "deployments.apps web -n shop"),
        ("DELETED", "shop/web-0"),
    ]
    assert [row["t"] for row in data["rows"]] == sorted(row["t"] for row in data["rows"])
    assert [one["n"] for one in data["connections"]] == ["1", "3", "2"]


def test_an_event_says_what_it_changed_since_the_list_or_the_last_event(tmp_path: Path) -> None:
    rows = data_of(tmp_path, controller_recording(4))["rows"]
    first, _, _, last = (row for row in rows if row["v"] == "MODIFIED")
    assert first["df"] == [["metadata.annotations.step", {}, {"value": "0"}]]
    assert ["status.phase", {"value": "Pending"}, {"value": "Running"}] in last["df"]
    assert last["df"][-1][0] == "metadata.annotations.step"
    patch = next(row for row in rows if row["v"] == "PATCH")
    assert patch["df"] == [["spec.replicas", {"value": 2}, {"value": 3}]]


def test_an_event_during_a_write_is_compared_with_the_state_before_the_write(tmp_path: Path) -> None:
    states = [pod("web-0", version, step=str(version)) for version in (5, 6, 7)]
    watched = [frame(10, "ADDED", states[0]), frame(34, "MODIFIED", states[1]), frame(52, "MODIFIED", states[2])]
    entries = [
        entry(1, "GET", f"{PODS}?watch=true", at=0, time=90, _verb="WATCH", _frames=watched),
        entry(2, "PUT", f"{PODS}/web-0", at=20, time=12, body=states[1]),
        entry(3, "PUT", f"{PODS}/web-0", at=33, time=15, body=states[2]),
    ]
    rows = data_of(tmp_path, har(entries))["rows"]
    steps = [(row["v"], row["t"], row["df"][0][1]["value"], row["df"][0][2]["value"]) for row in rows if row.get("df")]
    assert steps == [("UPDATE", 20, "5", "6"), ("UPDATE", 33, "6", "7"), ("MODIFIED", 34, "5", "6"), ("MODIFIED", 52, "6", "7")]


def test_an_error_says_its_reason(tmp_path: Path) -> None:
    row = next(row for row in data_of(tmp_path, controller_recording())["rows"] if row["v"] == "UPDATE")
    assert (row["st"], row["x"]) == (409, 'Conflict: Operation cannot be fulfilled on deployments.apps "web"')


@pytest.mark.parametrize(
    ("path", "status", "content", "expected"),
    [
        pytest.param("/nope", 404, {"mimeType": "text/plain", "text": "404 page not found\n"}, "404 page not found", id="a text"),
        pytest.param(
            "/api/v1/namespaces/shop/pods/x/log?follow=true",
            503,
            {"mimeType": "application/json", "text": '{"kind":"Status","reason":"ServiceUnavailable","message":"no kubelet"}'},
            "ServiceUnavailable: no kubelet",
            id="a Status about a log",
        ),
    ],
)
def test_every_error_says_what_its_body_says(tmp_path: Path, path: str, status: int, content: dict[str, Any], expected: str) -> None:
    one = entry(0, "GET", path, at=0, time=5)
    one["response"] |= {"status": status, "content": {"size": 1, **content}}
    (row,) = data_of(tmp_path, har([one]))["rows"]
    assert (row["st"], row["x"]) == (status, expected)


def test_a_recording_of_another_program_has_times_too(tmp_path: Path) -> None:
    content = controller_recording(2)
    for one in content["log"]["entries"]:
        del one["_offset"]
    assert data_of(tmp_path, content)["rows"][1]["t"] == 17  # the first request began 3 ms after the start


@pytest.mark.parametrize("text", [EVIL, "<!--", "]]>", "\u2029", "@@DATA@@"])
def test_recorded_texts_are_data_in_the_page(tmp_path: Path, text: str) -> None:
    event = frame(10, "ADDED", pod("web-0", 5, note=text))
    content = har(
        [entry(1, "GET", f"{PODS}?watch=true&labelSelector={text}", at=0, time=20, _verb="WATCH", _frames=[event], _outcome=text)],
        command=[text],
    )
    page = report_page(read_recording(write(tmp_path / "run.har", content)), report_differences).decode()
    scripts = re.findall(r"<script([^>]*)>(.*?)</script>", page, re.DOTALL)
    assert [attributes for attributes, _ in scripts] == [' type="application/json" id="data"', ""]
    found = json.loads(scripts[0][1])
    assert (found["meta"]["command"], found["requests"][0]["outcome"]) == ([text], text)
    assert "<" not in scripts[0][1]


def test_embedded_data_has_no_character_that_a_script_element_interprets() -> None:
    text = embedded({"a": EVIL})
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == {"a": EVIL}


def test_the_page_loads_nothing(tmp_path: Path) -> None:
    page = report_page(read_recording(write(tmp_path / "run.har", controller_recording())), report_differences).decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert policy[1].startswith("default-src &#x27;none&#x27;; style-src &#x27;sha256-")
    shell = page.partition('id="data"')[0]
    assert not re.findall(r"(?:src|href)=|url\(|@import", shell)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    if not chromium_binary():
        pytest.skip("there is no Chromium here: apt-get install chromium")
    with browser(tmp_path_factory.mktemp("chromium")) as page:
        yield page


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    file = folder / "run.html"
    file.write_bytes(report_page(read_recording(write(folder / "run.har", controller_recording(40))), report_differences))
    return file


@pytest.fixture
def page(chromium: Page, report: Path) -> Iterator[Page]:
    """The report, just opened. At the end: the browser has seen no error, and has loaded nothing else."""
    chromium.requests.clear()
    chromium.open(report)
    chromium.frame()
    yield chromium
    assert chromium.problems == []
    assert {url.partition("?")[0] for url in chromium.requests} == {report.as_uri()}


ROWS = "[...document.querySelectorAll('#list .row:not([hidden])')].sort((a, b) => a.index - b.index)"


def texts(page: Page, column: int) -> list[str]:
    found: list[str] = page.run(f"{ROWS}.map(row => row.children[{column}].textContent)")
    return found


def count(page: Page) -> str:
    return str(page.run("document.getElementById('count').textContent"))


def test_the_page_shows_the_conversation(page: Page) -> None:
    assert count(page) == "49 rows"
    assert texts(page, 2)[:6] == ["GET", "LIST", "FAILED", "WATCH", "GET", "PATCH"]
    assert texts(page, 4)[5] == "200  spec.replicas: 2 → 3"
    assert page.run("document.querySelector('#facts').innerText.includes('taken out')")
    assert page.run("document.getElementById('command').textContent") == "./manager --leader-elect"


def test_a_search_filters_the_rows(page: Page) -> None:
    page.press("/")
    assert page.run("document.activeElement.id") == "search"
    page.type("web-1 running")
    assert set(texts(page, 3)) == {"shop/web-1"}
    assert count(page).endswith("of 49 rows")
    page.press("Escape")
    assert count(page) == "49 rows"


def test_a_search_without_a_match_says_so(page: Page) -> None:
    page.press("/")
    page.type("no such text")
    assert (count(page), texts(page, 0)) == ("0 of 49 rows", [])
    assert page.run("document.getElementById('empty').innerText").startswith("No request or event matches.")


@pytest.mark.parametrize(
    ("select", "value", "verbs"), [("resource", "deployments.apps", {"GET", "PATCH", "UPDATE"}), ("verb", "DELETED", {"DELETED"})]
)
def test_a_choice_filters_the_rows(page: Page, select: str, value: str, verbs: set[str]) -> None:
    page.run(f"{{ const one = document.getElementById('{select}'); one.value = '{value}'; one.dispatchEvent(new Event('change')); }}")
    page.frame()
    assert set(texts(page, 2)) == verbs


def test_the_keyboard_moves_opens_and_closes(page: Page) -> None:
    for key in ("j", "j", "j", "k", "Enter"):
        page.press(key)
    assert page.run("document.querySelector('[aria-selected=true]').children[2].textContent") == "LIST"
    assert page.run("document.querySelector('#detail h2').textContent") == "LIST pods -n shop"
    assert "limit" in page.run("document.getElementById('detail').innerText")
    page.press("j")
    assert page.run("document.querySelector('#detail h2').textContent") == "FAILED connection to 127.0.0.1:6443"
    page.press("Escape")
    assert page.run("document.getElementById('detail').hidden")
    page.press("End")
    assert page.run("document.querySelector('[aria-selected=true]').children[2].textContent") == "DELETED"


def test_an_event_shows_its_changes_and_its_object(page: Page) -> None:
    for _ in range(11):
        page.press("j")
    page.press("Enter")
    changes = page.run("[...document.querySelectorAll('#detail .change tr')].map(row => [...row.children].map(cell => cell.textContent))")
    assert changes[0] == ["status.phase", "Pending", "Running"]
    assert '"image": "nginx:1.27"' in page.run("document.querySelector('#detail pre').textContent")


def test_a_drag_over_the_timeline_chooses_a_time(page: Page) -> None:
    box = page.run("(({left, top}) => [left, top])(document.getElementById('timeline').getBoundingClientRect())")
    page.drag((box[0] + 500, box[1] + 30), (box[0] + 700, box[1] + 30))
    assert 0 < int(count(page).split(" ")[0]) < 40
    page.press("Escape")
    assert count(page) == "49 rows"


@pytest.mark.parametrize(("scheme", "other"), [("light", "dark"), ("dark", "light")])
def test_the_theme_follows_the_system_and_the_button(page: Page, report: Path, scheme: str, other: str) -> None:
    page.open(report, scheme=scheme)
    background = page.run("getComputedStyle(document.body).backgroundColor")
    assert page.run("document.documentElement.dataset.theme") == scheme
    page.run("document.getElementById('theme').click()")
    assert page.run("document.documentElement.dataset.theme") == other
    assert page.run("getComputedStyle(document.body).backgroundColor") != background


@pytest.mark.parametrize(("width", "height"), [(800, 600), (1400, 900)])
def test_nothing_overflows_the_window(page: Page, report: Path, width: int, height: int) -> None:
    page.open(report, width=width, height=height)
    page.press("j")
    page.press("Enter")
    assert page.run("[document.documentElement.scrollWidth <= innerWidth, document.documentElement.scrollHeight <= innerHeight]") == [
        True,
        True,
    ]
    for name in ("search", "list", "detail", "theme"):
        left, top, right, bottom = page.run(
            f"(({{left, top, right, bottom}}) => [left, top, right, bottom])(document.getElementById('{name}').getBoundingClientRect())"
        )
        assert 0 <= left < right <= width
        assert 0 <= top < bottom <= height


def test_texts_of_a_recording_run_nothing_in_the_browser(chromium: Page, tmp_path: Path) -> None:
    event = frame(10, "ADDED", pod("web-0", 5, note=EVIL))
    content = har(
        [entry(1, "GET", f"{PODS}?watch=true", at=0, time=20, _verb="WATCH", _frames=[event], _outcome=EVIL)], command=[EVIL], server=EVIL
    )
    file = tmp_path / "evil.html"
    file.write_bytes(report_page(read_recording(write(tmp_path / "run.har", content)), report_differences))
    chromium.open(file)
    for key in ("j", "j", "Enter"):
        chromium.press(key)
    assert chromium.run("document.title") == "run.har - kubeloop tap"
    assert chromium.run("document.getElementById('command').textContent") == EVIL
    assert chromium.run("document.querySelectorAll('img').length") == 0
    assert chromium.problems == []


def test_ten_thousand_events_have_few_elements(chromium: Page, tmp_path: Path) -> None:
    file = tmp_path / "large.html"
    file.write_bytes(report_page(read_recording(write(tmp_path / "run.har", controller_recording(10_000))), report_differences))
    chromium.open(file)
    chromium.frame()
    assert count(chromium) == "10,009 rows"
    assert chromium.run("document.querySelectorAll('*').length") < 1000
    for key in ("End", "k", "k"):
        chromium.press(key)
    assert texts(chromium, 2)[-3:] == ["MODIFIED", "BOOKMARK", "DELETED"]
    chromium.run("document.getElementById('list').scrollTop = 5000 * 28")
    chromium.frame()
    assert len(texts(chromium, 0)) < 80
    chromium.press("/")
    chromium.type("web-77")
    assert set(texts(chromium, 3)) == {"shop/web-77"}
    assert chromium.problems == []
