"""Recordings: valid HAR at the end, readable after a kill, private, without secrets; and the messages about damaged ones."""

from __future__ import annotations

import json
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kubeloop.codec.protobuf import decode, encode, encode_event
from kubeloop.meta.errors import ConfigError
from kubeloop.tap.conversation import Conversation
from kubeloop.tap.recorder import HarRecorder
from kubeloop.tap.recording import read_recording
from kubeloop.tap.traffic import (
    ConnectionClosed,
    ConnectionFailed,
    ConnectionOpened,
    HeaderLines,
    RequestData,
    RequestEnded,
    RequestStarted,
    ResponseData,
    ResponseStarted,
    TrafficFact,
)
from tests.tap.recordings import controller_recording, pod, write

SECRET = "aGlkZGVu"
STARTED = datetime(2026, 5, 4, 10, tzinfo=UTC)
JSON: HeaderLines = (("Content-Type", "application/json"),)
PROTOBUF: HeaderLines = (("Content-Type", "application/vnd.kubernetes.protobuf"),)


def request(number: int, target: str, *, method: str = "GET", at: float = 0.0, headers: HeaderLines = ()) -> RequestStarted:
    path, _, query = target.partition("?")
    return RequestStarted(at, number, 1, method, f"https://c:6443{path}", path, query, headers)


def secret_in(body: bytes, headers: HeaderLines) -> list[TrafficFact]:
    sent = (("Authorization", "Bearer top"), ("Content-Type", "application/json"))
    return [
        request(1, "/api/v1/namespaces/a/secrets/x", method="PUT", headers=sent),
        RequestData(0.1, 1, json.dumps({"kind": "Secret", "apiVersion": "v1", "data": {"a": SECRET}}).encode()),
        ResponseStarted(0.2, 1, 200, (*headers, ("Set-Cookie", "a=b"))),
        ResponseData(0.3, 1, body),
        RequestEnded(0.4, 1),
    ]


SECRET_OBJECT: dict[str, Any] = {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "x"}, "data": {"a": SECRET}}
WATCH: list[TrafficFact] = [
    ConnectionOpened(0.0, 1, "c:6443", "TLSv1.3"),
    request(1, "/api/v1/namespaces/shop/pods?watch=true&resourceVersion=9", at=0.5),
    ResponseStarted(0.6, 1, 200, JSON, 0.55),
    ResponseData(0.7, 1, json.dumps({"type": "ADDED", "object": pod("web-0", 10)}).encode() + b"\n"),
    request(2, "/version", at=0.75),
    ResponseStarted(0.8, 2, 200, JSON),
    ResponseData(0.8, 2, b'{"major":"1"}'),
    RequestEnded(0.9, 2),
    ResponseData(1.1, 1, json.dumps({"type": "DELETED", "object": pod("web-0", 11)}).encode() + b"\n"),
    RequestEnded(1.5, 1, "the client closed the connection"),
    ConnectionClosed(1.5, 1),
    ConnectionFailed(1.6, 2, "c:6443", "the client does not trust the certificate of the tap"),
]


def recorded(path: Path, facts: list[TrafficFact], *, show_secrets: bool = False, close: bool = True) -> HarRecorder:
    recorder = HarRecorder(path, STARTED, {"server": "https://c:6443", "command": ["kubectl"]}, show_secrets=show_secrets)
    conversation = Conversation([recorder])
    for fact in facts:
        conversation(fact)
    if close:
        recorder.close()
    return recorder


def test_a_recording_is_a_har_file_with_frames(tmp_path: Path) -> None:
    path = tmp_path / "run.har"
    recorded(path, WATCH)
    log = json.loads(path.read_text())["log"]
    assert (log["version"], log["creator"]["name"]) == ("1.2", "kubeloop tap")
    watch, version = log["entries"]
    assert (watch["request"]["method"], watch["request"]["url"]) == (
        "GET",
        "https://c:6443/api/v1/namespaces/shop/pods?watch=true&resourceVersion=9",
    )
    assert watch["request"]["queryString"] == [{"name": "watch", "value": "true"}, {"name": "resourceVersion", "value": "9"}]
    assert (watch["startedDateTime"], watch["time"], watch["connection"]) == ("2026-05-04T10:00:00.500Z", 1000.0, "1")
    assert [(frame["time"], frame["type"]) for frame in watch["_frames"]] == [(200.0, "ADDED"), (600.0, "DELETED")]
    assert json.loads(watch["_frames"][0]["data"])["object"] == pod("web-0", 10)
    assert (watch["timings"]["connect"], watch["timings"]["wait"], watch["timings"]["receive"]) == (50.0, 50.0, 900.0)
    assert watch["_outcome"] == "the client closed the connection"
    assert (version["response"]["content"]["text"], version["response"]["status"], version["_outcome"]) == ('{"major":"1"}', 200, "")
    assert [one["event"] for one in log["_kubeloop"]["connections"]] == ["opened", "closed", "failed"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["run.har"]


@pytest.mark.parametrize("cut", [0, 1, 30], ids=["after a line", "before the end of a line", "within a line"])
def test_the_file_of_a_killed_tap_is_read_up_to_its_last_step(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "run.har"
    recorder = recorded(path, WATCH[:9], close=False)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) - cut])
    recording = read_recording(path)
    assert not recording.complete
    watch, version = recording.entries
    assert [frame.type for frame in watch.frames or ()] == ["ADDED", "DELETED"][: 2 if cut == 0 else 1]
    assert (watch.response.status, watch.outcome, version.response.content.text) == (
        200,
        "the recording ended before the response",
        '{"major":"1"}',
    )
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    recorder.close()


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        pytest.param(secret_in(json.dumps(SECRET_OBJECT).encode(), JSON), '"data":{"a":"***"}', id="JSON"),
        pytest.param(
            secret_in(json.dumps({"kind": "Secret"}).encode()[:-2], JSON), "may contain secrets", id="a body that cannot be decoded"
        ),
        pytest.param(
            secret_in(b"data: {a: %b}" % SECRET.encode(), (("Content-Type", "application/yaml"),)), "may contain secrets", id="YAML"
        ),
    ],
)
def test_a_recording_has_no_secrets(tmp_path: Path, facts: list[TrafficFact], expected: str) -> None:
    path = tmp_path / "run.har"
    recorded(path, facts)
    text = path.read_text()
    for hidden in (SECRET, "top", "a=b"):
        assert hidden not in text
    content = json.loads(text)["log"]["entries"][0]["response"]["content"]
    assert expected in content["text"] + content.get("_omitted", "")


def test_a_secret_in_protobuf_is_recorded_without_its_values(tmp_path: Path) -> None:
    path = tmp_path / "run.har"
    recorded(path, secret_in(encode(SECRET_OBJECT), PROTOBUF))
    entry = read_recording(path).entries[0]
    assert b"hidden" not in path.read_bytes()
    assert decode(entry.response.content.data)["data"] == {"a": "Kioq"}


def test_a_secret_in_a_protobuf_watch_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "run.har"
    frame = encode_event("ADDED", encode(SECRET_OBJECT))
    recorded(
        path, [request(1, "/api/v1/secrets?watch=1"), ResponseStarted(0, 1, 200, PROTOBUF), ResponseData(1, 1, frame), RequestEnded(2, 1)]
    )
    frames = read_recording(path).entries[0].frames
    assert frames is not None
    assert (frames[0].type, frames[0].omitted, frames[0].data) == ("ADDED", "contains secrets", "")


def test_secrets_are_recorded_when_they_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "run.har"
    recorded(path, secret_in(json.dumps(SECRET_OBJECT).encode(), JSON), show_secrets=True)
    assert SECRET in path.read_text()
    assert "Bearer top" in path.read_text()


def test_a_full_disk_ends_the_recording_and_nothing_else(tmp_path: Path) -> None:
    recorder = recorded(tmp_path / "run.har", WATCH[:4], close=False)
    recorder._file.close()
    recorder._file = Path("/dev/full").open("wb")  # noqa: SIM115 - closed below
    recorder.on_connection(ConnectionClosed(1, 1))
    assert "run.har: the recording is incomplete: No space left on device" in recorder.failure
    recorder.on_connection(ConnectionClosed(2, 2))
    with pytest.raises(OSError, match="No space"):
        recorder._file.close()


#: What every message about a file of another kind says.
EXPECTED = "expected a recording (HAR 1.2); make one with: kubeloop tap --record run.har -- COMMAND"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param("", f"the file is empty; {EXPECTED}", id="an empty file"),
        pytest.param("not JSON", f"this file has no JSON in it; {EXPECTED}", id="a text"),
        pytest.param('{"log": {"version": "1.2", "entries": [{"request"', "the recording is damaged", id="a HAR file that was cut"),
        pytest.param('{"a": 1}', f"not a HAR file: object missing required field `log`; {EXPECTED}", id="another JSON file"),
        pytest.param("[]", "not a HAR file: expected `object`, got `array`; expected a recording", id="a JSON list"),
        pytest.param(
            '{"log": {"version": "1.2", "entries": [{"request": {"method": 3, "url": ""}}]}}',
            "not a HAR file: log.entries[0].request.method: expected `str`, got `int`",
            id="a wrong type",
        ),
        pytest.param('{"log": {"version": "2.0", "entries": []}}', "HAR version 2.0 is not supported", id="another version of HAR"),
        pytest.param(
            '{"log": {"version": "1.2", "entries": [], "_kubeloop": {"format": 2}}}',
            "the recording has format 2, this version of kubeloop reads format 1",
            id="another format",
        ),
        pytest.param('{"kubeloopTapJournal":2,"log":{}}\n', "the recording has format 2", id="a journal of another format"),
        pytest.param(
            '{"kubeloopTapJournal":1,"log":{"version":"1.2"}}\n}{\n{}\n', "the recording is damaged in line 2", id="a damaged journal"
        ),
    ],
)
def test_a_file_that_is_no_recording(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "run.har"
    path.write_text(content)
    with pytest.raises(ConfigError) as error:
        read_recording(path)
    assert str(error.value).startswith(f"{path}: ")
    assert message in str(error.value)


def test_a_file_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.har: cannot be read \(No such file or directory\); expected a recording \(HAR 1\.2\)"):
        read_recording(tmp_path / "none.har")


def test_a_file_that_exists_is_overwritten_on_demand_only(tmp_path: Path) -> None:
    path = tmp_path / "run.har"
    path.write_text("precious")
    with pytest.raises(ConfigError, match=r"run\.har: the file exists; name another one, or overwrite it with --force"):
        HarRecorder(path, STARTED, {})
    assert path.read_text() == "precious"
    HarRecorder(path, STARTED, {}, overwrite=True).close()
    assert read_recording(path).entries == []


def test_the_recording_of_a_command_that_was_not_started_is_removed(tmp_path: Path) -> None:
    recorder = HarRecorder(tmp_path / "run.har", STARTED, {})
    recorder.discard()
    recorder.close()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be written \(Is a directory\)"):
        HarRecorder(tmp_path, STARTED, {})


def test_the_har_file_of_another_program_is_read(tmp_path: Path) -> None:
    content = controller_recording()
    del content["log"]["_kubeloop"]
    for entry in content["log"]["entries"]:
        for name in [name for name in entry if name.startswith("_")]:
            del entry[name]
    recording = read_recording(write(tmp_path / "run.har", content))
    assert (len(recording.entries), recording.details, recording.complete) == (6, {}, True)
