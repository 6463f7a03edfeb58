"""Settings from file and environment: their values, their errors, and changes while the manager runs."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.client import Client
from kubeloop.controller import Controller, Manager
from kubeloop.controller.manager.logs import JsonFormatter, LogOutput, TextFormatter
from kubeloop.controller.manager.settings import ManagerSettings, SettingsFile
from kubeloop.controller.manager.settings.reloader import PERIOD, Reloader, WorkersByName
from kubeloop.meta import ConfigError, ObjectMeta
from kubeloop.testing import HandlerServer
from kubeloop.timing import FakeClock, TokenBucket
from kubeloop.transport import log_context, logger_with_context
from kubeloop.workqueue import RateCap

WHOLE = """
health: "127.0.0.1:0"
metrics: ""
leaderElection: {name: lock, namespace: ops, leaseDuration: 30}
namespaces: [shop, bank]
workers: {foo: 4}
reconciles: {perSecond: 10, burst: 5}
requests: {perSecond: 20.5}
grace: -1
syncTimeout: 60
logLevel: debug
logFormat: json
"""

CYCLE: list[object] = []
CYCLE.append(CYCLE)


def load(tmp_path: Path, text: str, environment: dict[str, str] | None = None, name: str = "settings.yaml") -> ManagerSettings:
    path = tmp_path / name
    path.write_text(text)
    return SettingsFile(path, environment or {}).load()


def test_yaml_and_toml_say_the_same(tmp_path: Path) -> None:
    settings = load(tmp_path, WHOLE)
    toml = """
    health = "127.0.0.1:0"
    metrics = ""
    namespaces = ["shop", "bank"]
    grace = -1
    syncTimeout = 60
    logLevel = "debug"
    logFormat = "json"
    [leaderElection]
    name = "lock"
    namespace = "ops"
    leaseDuration = 30
    [workers]
    foo = 4
    [reconciles]
    perSecond = 10
    burst = 5
    [requests]
    perSecond = 20.5
    """
    assert load(tmp_path, toml, name="settings.toml") == settings
    assert settings.leader_election is not None
    assert settings.leader_election.config().lease_duration == 30
    assert settings.workers == {"foo": 4}


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        WHOLE,
        {
            "KUBELOOP_MANAGER_GRACE": "5",
            "KUBELOOP_MANAGER_NAMESPACES": "one, two",
            "KUBELOOP_MANAGER_LEADER_ELECTION_RELEASE_ON_STOP": "false",
            "KUBELOOP_MANAGER_WORKERS": '{"bar": 2}',
        },
    )
    assert settings.grace == 5
    assert settings.namespaces == ("one", "two")
    assert settings.leader_election is not None
    assert not settings.leader_election.release_on_stop
    assert settings.leader_election.name == "lock"
    assert settings.workers == {"bar": 2}


def test_without_a_file_the_environment_is_all() -> None:
    assert SettingsFile(environment={"KUBELOOP_MANAGER_LOG_LEVEL": "error"}).load() == ManagerSettings(log_level="error")
    assert SettingsFile(environment={}).load() == ManagerSettings()


ELECTION = "leaderElection: {name: a, namespace: b, "


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("grce: 3", r"settings .*settings\.yaml: grce: no such field; did you mean grace\?", id="a misspelt field"),
        pytest.param(
            ELECTION + "leaseDuraton: 3}", r"leaderElection\.leaseDuraton: .*did you mean leaseDuration\?", id="a misspelt field within"
        ),
        pytest.param("nonsense: 1", "nonsense: no such field; there are health, metrics, debug", id="a field that resembles none"),
        pytest.param("grace: soon", r"grace: expected float \| null, got str", id="a text where a number is wanted"),
        pytest.param("workers: {foo: many}", "workers: expected int, got str", id="a text where a number of workers is wanted"),
        pytest.param("workers: {foo: 0}", "workers: foo needs at least 1, not 0", id="no worker"),
        pytest.param("logLevel: loud", "logLevel: invalid enum value 'loud'", id="a level that there is not"),
        pytest.param("health: nowhere", "health: 'nowhere' is not an address", id="an address that is none"),
        pytest.param("debug: ':6060'", "reached from other machines", id="debug for everybody"),
        pytest.param(ELECTION + "leaseDuration: 5}", r"lease_duration .* must be longer", id="times that cannot keep two from leading"),
        pytest.param("leaderElection: {namespace: b}", "leaderElection: object missing required field name", id="a field is missing"),
        pytest.param("reconciles: {perSecond: 0}", "reconciles: perSecond must be above 0", id="a rate of nothing"),
        pytest.param("namespaces: [Shop]", "namespace 'Shop' cannot be", id="a namespace that cannot be"),
        pytest.param("a: [", "cannot be read", id="no YAML"),
        pytest.param("---\na: 1\n---\nb: 2", "2 documents; put everything into one", id="two documents"),
    ],
)
def test_a_fault_names_file_field_and_fix(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load(tmp_path, text)
    assert "settings.yaml" in str(caught.value)


@pytest.mark.parametrize("number", ["nan", "inf"])
@pytest.mark.parametrize(
    "field", ["grace", "syncTimeout", "reconciles.perSecond", "leaderElection.leaseDuration", "leaderElection.retryPeriod"]
)
def test_a_value_that_is_no_finite_number_is_refused(tmp_path: Path, field: str, number: str) -> None:
    """TOML has them, and so may variables."""
    where = tmp_path / "settings.toml"
    where.write_text(f'{field} = {number}\nleaderElection.name = "a"\nleaderElection.namespace = "b"\n')
    with pytest.raises(ConfigError, match=f"must be .*not {number}"):
        SettingsFile(where, {}).load()


def test_variables_fill_a_section_that_the_file_leaves_empty(tmp_path: Path) -> None:
    where = tmp_path / "settings.yaml"
    where.write_text("leaderElection:\n")
    prefix = "KUBELOOP_MANAGER_LEADER_ELECTION_"
    found = SettingsFile(where, {f"{prefix}NAME": "a", f"{prefix}NAMESPACE": "b"}).load()
    assert found.leader_election is not None
    assert (found.leader_election.name, found.leader_election.namespace) == ("a", "b")


def test_a_fault_of_the_environment_names_the_variable(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="KUBELOOP_MANAGER_GRACE='soon': expected float"):
        load(tmp_path, "", {"KUBELOOP_MANAGER_GRACE": "soon"})
    with pytest.raises(ConfigError, match=r"nothing\.yaml cannot be read: No such file"):
        SettingsFile(tmp_path / "nothing.yaml", {}).load()


def test_a_variable_that_sets_nothing_is_logged_and_those_of_a_service_are_not(caplog: pytest.LogCaptureFixture) -> None:
    others = {
        "KUBELOOP_MANAGER_SERVICE_HOST": "10.0.0.1",
        "KUBELOOP_MANAGER_PORT_443_TCP": "tcp://10.0.0.1:443",
        "KUBELOOP_MANAGER_PORT": "x",
    }
    SettingsFile(environment={"KUBELOOP_MANAGER_LOGLEVEL": "error", **others}).load()
    assert caplog.messages == ["KUBELOOP_MANAGER_LOGLEVEL sets nothing; did you mean KUBELOOP_MANAGER_LOG_LEVEL?"]


class Foo(Controller[ConfigMap], name="foo", workers=1):
    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.running: set[str] = set()
        self.changed = asyncio.Event()

    async def reconcile(self, config: ConfigMap) -> None:
        self.running.add(config.metadata.name)
        self.changed.set()
        await self.gate.wait()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def client(clock: FakeClock) -> AsyncIterator[Client]:
    async with HandlerServer(clock=clock) as server:
        yield server.client()


async def many_run(foo: Foo, number: int) -> None:
    async with asyncio.timeout(20):
        while len(foo.running) < number:
            foo.changed.clear()
            await foo.changed.wait()


@pytest.mark.embedded
async def test_a_changed_file_is_taken_over_as_far_as_it_can_be(
    client: Client, clock: FakeClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path, foo = tmp_path / "settings.yaml", Foo()
    path.write_text("workers: {foo: 2}\ngrace: 0\n")
    for name in "abcd":
        await client.create(ConfigMap(metadata=ObjectMeta(name=name, namespace="default")))
    async with Manager(client, [foo], settings=SettingsFile(path, {}), clock=clock) as manager:
        await many_run(foo, 2)
        assert manager.stats[0].workers == 2
        new = tmp_path / "new"
        new.write_text("workers: {foo: 4}\ngrace: 3\nhealth: 127.0.0.1:0\nrequests: {perSecond: 100, burst: 50}\n")
        new.replace(path)
        await clock.advance(PERIOD + 1)
        await many_run(foo, 4)
        assert manager.stats[0].workers == 4
        assert manager.grace == 3
        assert "settings: workers is applied" in caplog.text
        assert "settings: health is not applied: it needs a restart" in caplog.text
        path.write_text("workers: {fo: 1}\ngrace: 3")
        await clock.advance(PERIOD + 1)
        assert 'settings: workers is not applied: there is no controller "fo"; there are: foo' in caplog.text
        path.write_text("grace: soon, or so")
        await clock.advance(PERIOD + 1)
        assert "keeping the previous settings: settings" in caplog.text
        assert manager.grace == 3
        foo.gate.set()


@pytest.mark.embedded
async def test_workers_of_a_controller_that_there_is_not_are_refused_at_the_start(client: Client) -> None:
    with pytest.raises(ConfigError, match='settings: workers: there is no controller "bar"; there are: foo'):
        await Manager(client, [Foo()], settings=ManagerSettings(workers={"bar": 2})).start()


@pytest.mark.embedded
async def test_settings_win_over_the_program(client: Client, clock: FakeClock) -> None:
    settings = ManagerSettings(health="127.0.0.1:0", grace=-1, namespaces=("shop",))
    async with Manager(client, [Foo()], settings=settings, grace=7, clock=clock) as manager:
        assert manager.grace is None
        assert set(manager.urls) == {"health"}
        assert "/namespaces/shop/" in json.dumps(manager.informers.dump()) or "shop" in str(manager.informers.describe())


async def test_a_reload_says_what_differs_and_nothing_if_nothing_does(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("grace: 1\n")
    source = SettingsFile(path, {})
    taken: list[float | None] = []

    def set_grace(settings: ManagerSettings) -> str:
        taken.append(settings.grace)
        return ""

    reloader = Reloader(source, source.load(), {"grace": set_grace}, clock)
    assert reloader.reload() == []
    path.write_text("grace: 2\nhealth: ':80'\n")
    assert reloader.reload() == ["health is not applied: it needs a restart", "grace is applied"]
    assert reloader.reload() == ["health is not applied: it needs a restart"]
    assert taken == [2]


@pytest.mark.embedded
async def test_sighup_reloads(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("grace: 1\n")
    before = signal.getsignal(signal.SIGHUP)
    async with Manager(client, settings=SettingsFile(path, {})) as manager:
        path.write_text("grace: 2\n")
        os.kill(os.getpid(), signal.SIGHUP)
        async with asyncio.timeout(10):
            while manager.grace != 2:
                await asyncio.sleep(0.001)
    assert signal.getsignal(signal.SIGHUP) is before


@pytest.mark.embedded
async def test_requests_are_limited_from_the_next_one_on(client: Client) -> None:
    client.transport.limit(TokenBucket(1e6, 1))
    await client.transport.request("GET", "/version")
    client.transport.limit(None)
    await client.transport.request("GET", "/version")


def record_of(output: io.StringIO) -> dict[str, object]:
    found: dict[str, object] = json.loads(output.getvalue())
    return found


def test_a_record_as_json_says_what_it_is_about() -> None:
    stream = io.StringIO()
    output = LogOutput("json", "debug", stream)
    try:
        with log_context(controller="foo", key="shop/a"):
            logger_with_context("test.json").warning("cannot reach %s", "it", extra={"attempt": 3})
    finally:
        output.close()
    record = record_of(stream)
    assert str(record.pop("time")).endswith("Z")
    assert record == {
        "level": "warning",
        "logger": "test.json",
        "message": "cannot reach it",
        "controller": "foo",
        "key": "shop/a",
        "attempt": 3,
    }


@pytest.mark.parametrize(
    ("fields", "message", "added"),
    [
        pytest.param(
            {"cluster": "dev", "informer": "pods in all namespaces"},
            "pods in all namespaces: forbidden",
            " cluster=dev",
            id="a field that is the subject of the message stands once",
        ),
        pytest.param(
            {"cluster": "dev", "controller": "web", "key": "shop/a", "reconcile": "1f-1"},
            "web shop/a: reconcile raised ValueError: bad image",
            " cluster=dev reconcile=1f-1",
            id="so do several fields in the subject",
        ),
        pytest.param(
            {"controller": "web", "key": "shop/a"},
            "updated: the deployment of web shop/a",
            " controller=web key=shop/a",
            id="fields that the message names after its subject follow it",
        ),
        pytest.param(
            {"controller": "web", "key": "shop/a"}, "webs shop/abc: gone", " controller=web key=shop/a", id="a part of a word is no field"
        ),
        pytest.param({"cluster": "dev"}, "dev", " cluster=dev", id="a message without a colon has no subject"),
    ],
)
def test_a_line_of_text_repeats_no_field_that_the_message_names_as_its_subject(fields: dict[str, str], message: str, added: str) -> None:
    record = logging.LogRecord("a", logging.INFO, "", 0, message, (), None)
    record.kubeloop = fields
    assert TextFormatter().format(record).endswith(f" INFO a: {message}{added}")


def test_an_exception_is_part_of_the_record() -> None:
    logger = logging.getLogger("test.json")
    try:
        raise ValueError("bad")
    except ValueError as error:
        record = logger.makeRecord(logger.name, logging.ERROR, __file__, 1, "failed", (), (ValueError, error, error.__traceback__))
    assert json.loads(JsonFormatter().format(record))["error"].endswith("ValueError: bad")
    assert "failed\nTraceback" in TextFormatter().format(record)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        pytest.param({("a", 1): 2}, "{('a', 1): 2}", id="keys that are no text"),
        pytest.param(float("nan"), "nan", id="a number that JSON has not"),
        pytest.param(CYCLE, "[[...]]", id="a list within itself"),
    ],
)
def test_a_value_that_is_no_json_costs_no_record(value: object, shown: str) -> None:
    logger = logging.getLogger("test.json")
    record = logger.makeRecord(logger.name, logging.INFO, __file__, 1, "seen", (), None, extra={"value": value})
    found = json.loads(JsonFormatter().format(record))
    assert (found["message"], found["value"]) == ("seen", shown)


def test_the_root_logger_is_put_back_and_a_wrong_style_is_refused() -> None:
    root = logging.getLogger()
    before = (list(root.handlers), root.level)
    output = LogOutput("text", "error", io.StringIO())
    with pytest.raises(ValueError, match="json or text, not 'xml'"):
        output.set("xml", "info")
    output.close()
    assert (root.handlers, root.level) == before


async def test_a_cap_that_is_raised_lets_those_through_that_wait(clock: FakeClock) -> None:
    cap = RateCap(0.001, 1, clock)
    assert cap.try_pass()
    waiting = [cap.line_up() for _ in range(3)]
    assert not any(one.done() for one in waiting)
    cap.change(1.0, 2)
    assert [one.done() for one in waiting] == [True, True, False]
    await clock.advance(1.1)
    assert waiting[2].done()
    with pytest.raises(ValueError, match="rate above 0"):
        cap.change(0, 1)


@pytest.mark.embedded
async def test_fewer_workers_work_on_fewer_keys_once_the_present_ones_are_done(client: Client, clock: FakeClock, tmp_path: Path) -> None:
    class Turns(Controller[ConfigMap], name="foo"):
        def __init__(self) -> None:
            self.turns: asyncio.Queue[asyncio.Event] = asyncio.Queue()

        async def reconcile(self, config: ConfigMap) -> None:
            turn = asyncio.Event()
            self.turns.put_nowait(turn)
            await turn.wait()

    path, foo = tmp_path / "settings.yaml", Turns()
    path.write_text("workers: {foo: 2}\n")
    for name in "abcdef":
        await client.create(ConfigMap(metadata=ObjectMeta(name=name, namespace="default")))
    async with Manager(client, [foo], settings=SettingsFile(path, {}), clock=clock, grace=0) as manager:
        async with asyncio.timeout(20):
            first, second = await foo.turns.get(), await foo.turns.get()
            path.write_text("workers: {foo: 1}  # a longer file\n")
            await clock.advance(PERIOD + 1)
            assert manager.stats[0].workers == 1
            first.set()
            second.set()
            for _ in range(4):
                turn = await foo.turns.get()
                for _ in range(10):
                    await asyncio.sleep(0)
                assert manager.stats[0].counts.active == 1
                turn.set()


def test_numbers_of_workers_hold_for_each_clusters_controller_of_that_name() -> None:
    numbers = WorkersByName({"foo": 2, "foo@west": 5})
    assert [numbers.get(name) for name in ("foo", "foo@east", "foo@west", "bar")] == [2, 2, 5, None]
    assert (len(numbers), list(numbers)) == (2, ["foo", "foo@west"])
