"""Probes, metrics and debug pages over real sockets: what they say, to whom, and where they refuse to listen."""

from __future__ import annotations

import asyncio
import json
import logging
import pstats
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.parser import text_string_to_metric_families

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.client import Client
from kubeloop.controller import Controller, Manager, Result, TerminalError
from kubeloop.controller.election import LeaseConfig
from kubeloop.controller.manager.endpoints import Address, Endpoints, Unhealthy
from kubeloop.controller.manager.settings import SettingsFile
from kubeloop.meta import ConfigError, ObjectMeta
from kubeloop.testing import TlsTestServer
from kubeloop.timing import FakeClock
from kubeloop.transport import Transport

pytestmark = pytest.mark.embedded

ANYWHERE = "127.0.0.1:0"


class Mixed(Controller[ConfigMap], name="mixed", workers=3):
    """Each object's name says how its reconcile ends."""

    def __init__(self) -> None:
        self.seen: asyncio.Queue[str] = asyncio.Queue()

    async def reconcile(self, config: ConfigMap) -> Result | None:
        self.seen.put_nowait(config.metadata.name)
        if config.metadata.name == "terminal":
            raise TerminalError("never")
        return Result(requeue_after=3600) if config.metadata.name == "later" else None


@pytest.fixture
async def client(in_loop_server: TlsTestServer) -> AsyncIterator[Client]:
    async with Client(Transport(in_loop_server.config), namespace="default") as found:
        yield found


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as found:
        yield found


async def get(http: aiohttp.ClientSession, url: str) -> tuple[int, str]:
    async with http.get(url) as answer:
        return answer.status, await answer.text()


async def test_probes_answer_as_those_of_kubernetes_do(client: Client, http: aiohttp.ClientSession) -> None:
    faults = {"disk": ""}

    def disk() -> None:
        if faults["disk"]:
            raise Unhealthy(faults["disk"])

    async def database() -> None: ...

    endpoints = Endpoints(health=ANYWHERE, healthz={"disk": disk}, readyz={"database": database})
    async with Manager(client, [Mixed()], endpoints=endpoints) as manager:
        url = manager.urls["health"]
        assert await get(http, f"{url}/healthz") == (200, "ok")
        assert await get(http, f"{url}/readyz?verbose") == (
            200,
            "[+]informers ok\n[+]shutdown ok\n[+]background-tasks ok\n[+]database ok\nreadyz check passed\n",
        )
        faults["disk"] = "full: 0 bytes left"
        assert await get(http, f"{url}/healthz") == (
            500,
            "[+]event-loop ok\n[-]disk failed: reason withheld\nhealthz check failed\n",
        )
        assert await get(http, f"{url}/healthz/disk") == (500, "internal server error: full: 0 bytes left\n")
        assert await get(http, f"{url}/healthz/event-loop") == (200, "ok")
        assert await get(http, f"{url}/healthz?exclude=disk") == (200, "ok")
        status, text = await get(http, f"{url}/healthz?verbose&exclude=disk&exclude=nothing")
        assert (status, text.splitlines()) == (
            200,
            [
                "[+]event-loop ok",
                "[+]disk excluded: ok",
                'warn: some health checks cannot be excluded: no matches for "nothing"',
                "healthz check passed",
            ],
        )
        assert (await get(http, f"{url}/healthz/nothing"))[0] == 404
        assert (await get(http, f"{url}/other"))[0] == 404


async def test_it_is_alive_but_not_ready_while_its_caches_sync(
    in_loop_server: TlsTestServer, client: Client, http: aiohttp.ClientSession
) -> None:
    let_go = in_loop_server.faults.hold(matching=lambda request: request.path.endswith("/configmaps"))
    manager = Manager(client, [Mixed()], endpoints=Endpoints(health=ANYWHERE))
    starting = asyncio.create_task(manager.start())
    async with asyncio.timeout(10):
        while not any("/configmaps" in request for request in in_loop_server.faults.requests):
            await asyncio.sleep(0.001)
    assert await get(http, manager.urls["health"] + "/healthz") == (200, "ok")
    status, text = await get(http, manager.urls["health"] + "/readyz/informers")
    assert status == 500
    assert "not synced: configmaps" in text
    let_go()
    await starting
    assert await get(http, manager.urls["health"] + "/readyz") == (200, "ok")
    await manager.stop()


async def test_it_is_not_ready_while_it_stops(client: Client, http: aiohttp.ClientSession) -> None:
    begun, answers = asyncio.Event(), []
    manager = Manager(client, endpoints=Endpoints(health=ANYWHERE))

    async def looks_at_the_end() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            answers.append(await get(http, manager.urls["health"] + "/readyz/shutdown"))

    await manager.add(looks_at_the_end)
    async with manager:
        await begun.wait()
    assert answers == [(500, "internal server error: the manager is stopping\n")]


async def test_the_election_is_part_of_the_health(client: Client, http: aiohttp.ClientSession) -> None:
    endpoints = Endpoints(health=ANYWHERE, metrics=ANYWHERE)
    async with Manager(client, endpoints=endpoints, leader_election=LeaseConfig("lock", "default", "a")) as manager:
        await asyncio.wait_for(manager.wait_leading(), 20)
        assert (await get(http, manager.urls["health"] + "/healthz?verbose"))[1].splitlines()[1] == "[+]leader-election ok"
        samples = await scrape(http, manager)
        assert samples['leader_election_master_status{"name": "lock"}'] == 1


async def scrape(http: aiohttp.ClientSession, manager: Manager) -> dict[str, float]:
    status, text = await get(http, manager.urls["metrics"] + "/metrics")
    assert status == 200
    families = list(text_string_to_metric_families(text))
    assert len({family.name for family in families}) == len(families)
    return {f"{sample.name}{json.dumps(sample.labels, sort_keys=True)}": sample.value for family in families for sample in family.samples}


async def test_metrics_show_controllers_under_the_names_of_controller_runtime(client: Client, http: aiohttp.ClientSession) -> None:
    registry = CollectorRegistry()
    Counter("shop_orders", "The program's own.", registry=registry).inc()
    controller = Mixed()
    for name in ("fine", "terminal", "later"):
        await client.create(ConfigMap(metadata=ObjectMeta(name=name)))
    async with Manager(client, [controller], endpoints=Endpoints(metrics=ANYWHERE, registry=registry)) as manager:
        async with asyncio.timeout(10):
            while manager.stats[0].counts.reconciles < 3:
                await asyncio.sleep(0.001)
        samples = await scrape(http, manager)
    prefix = "controller_runtime_"
    of = '{"controller": "mixed"}'
    results = {result: samples[f'{prefix}reconcile_total{{"controller": "mixed", "result": "{result}"}}'] for result in (
        "success", "error", "requeue", "requeue_after")}  # fmt: skip
    assert results == {"success": 1, "error": 1, "requeue": 0, "requeue_after": 1}
    assert samples[f"{prefix}reconcile_errors_total{of}"] == 1
    assert samples[f"{prefix}terminal_reconcile_errors_total{of}"] == 1
    assert samples[f"{prefix}reconcile_panics_total{of}"] == 0
    assert samples[f"{prefix}reconcile_timeouts_total{of}"] == 0
    assert samples[f"{prefix}max_concurrent_reconciles{of}"] == 3
    assert samples[f"{prefix}active_workers{of}"] == 0
    assert samples[f"{prefix}reconcile_time_seconds_count{of}"] == 3
    assert samples["shop_orders_total{}"] == 1
    assert any(name.startswith("rest_client_requests_total") for name in samples)
    assert any(name.startswith("kubeloop_informer_objects") for name in samples)
    assert samples['workqueue_adds_total{"controller": "mixed", "name": "mixed"}'] >= 3
    assert any(name.startswith("workqueue_queue_duration_seconds_count") for name in samples)
    assert samples["kubeloop_event_loop_lag_seconds{}"] >= 0
    assert samples['kubeloop_events_recorded_total{"api": "v1", "component": "mixed"}'] == 0


async def test_a_background_task_that_failed_is_counted_and_shown_until_it_works_again(
    client: Client, http: aiohttp.ClientSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    (tmp_path / "settings.yaml").write_text("grace: 1\n")
    source = SettingsFile(tmp_path / "settings.yaml", {})
    endpoints = Endpoints(metrics=ANYWHERE, health=ANYWHERE)
    async with Manager(client, settings=source, endpoints=endpoints, clock=clock) as manager:
        ready = manager.urls["health"] + "/readyz"
        found = await scrape(http, manager)
        assert found['kubeloop_background_task_failures_total{"task": "settings"}'] == 0
        assert found['kubeloop_background_task_failures_total{"task": "loop-lag"}'] == 0
        assert (await get(http, ready))[0] == 200

        monkeypatch.setattr(SettingsFile, "stamp", _fail)
        await clock.advance(5)
        assert (await scrape(http, manager))['kubeloop_background_task_failures_total{"task": "settings"}'] == 1
        status, text = await get(http, ready)
        assert (status, "[-]background-tasks failed: reason withheld" in text) == (500, True)

        monkeypatch.undo()
        await clock.advance(1)
        found = await scrape(http, manager)
        assert found['kubeloop_background_task_restarts_total{"task": "settings"}'] == 1
        assert (await get(http, ready))[0] == 200
    assert [record.exc_info is not None for record in caplog.records if "settings failed" in record.getMessage()] == [True]


def _fail(_: SettingsFile) -> object:
    raise RuntimeError("the disk is gone")


async def test_metrics_of_the_process_are_there_by_default_and_only_get_is_answered(client: Client, http: aiohttp.ClientSession) -> None:
    async with Manager(client, endpoints=Endpoints(metrics=ANYWHERE)) as manager:
        assert any(name.startswith("process_cpu_seconds_total") for name in await scrape(http, manager))
        await scrape(http, manager)
        async with http.post(manager.urls["metrics"] + "/metrics") as answer:
            assert answer.status == 405
        assert (await get(http, manager.urls["metrics"] + "/healthz"))[0] == 404


async def test_debug_pages_show_what_happens(client: Client, http: aiohttp.ClientSession, tmp_path: Path) -> None:
    controller = Mixed()
    await client.create(ConfigMap(metadata=ObjectMeta(name="fine")))
    async with Manager(client, [controller], endpoints=Endpoints(debug=ANYWHERE)) as manager:
        await asyncio.wait_for(controller.seen.get(), 10)
        url = manager.urls["debug"] + "/debug"
        assert "/debug/tasks" in (await get(http, url + "/"))[1]
        tasks = (await get(http, url + "/tasks"))[1]
        assert 'task "controller-mixed" (waiting)' in tasks
        assert "workers.py" in tasks
        assert "MainThread" in (await get(http, url + "/threads"))[1]
        assert "allocations are not traced" in (await get(http, url + "/memory"))[1]
        informers = json.loads((await get(http, url + "/informers"))[1])
        assert "configmaps" in json.dumps(informers[client.cluster])
        queues = json.loads((await get(http, url + "/queues"))[1])
        assert queues["controllers"][0]["name"] == "mixed"
        assert queues["controllers"][0]["counts"]["last_key"] == "default/fine"
        assert "cumulative" in (await get(http, url + "/profile?seconds=0.01"))[1]
        async with http.get(url + "/profile?seconds=0.01&format=pstats") as answer:
            (tmp_path / "profile").write_bytes(await answer.read())
        assert pstats.Stats(str(tmp_path / "profile")).total_calls > 0  # type: ignore[attr-defined]  # there, but not in the stubs
        assert await get(http, url + "/profile?seconds=x") == (400, "seconds must be a number above 0, 300 at most, not 'x'\n")
        assert (await get(http, url + "/nothing"))[0] == 404


async def test_debug_changes_log_levels_and_tracing_by_put_only(client: Client, http: aiohttp.ClientSession) -> None:
    logger = logging.getLogger("test.debug.level")
    async with Manager(client, endpoints=Endpoints(debug=ANYWHERE)) as manager:
        url = manager.urls["debug"] + "/debug"
        async with http.put(url + "/loglevel?logger=test.debug.level&level=debug") as answer:
            assert await answer.text() == "test.debug.level logs from DEBUG on\n"
        assert logger.level == logging.DEBUG
        assert "DEBUG    test.debug.level" in (await get(http, url + "/loglevel"))[1]
        logger.setLevel(logging.NOTSET)
        async with http.put(url + "/loglevel?level=loud") as answer:
            assert answer.status == 400
        async with http.post(url + "/loglevel?level=DEBUG") as answer:
            assert answer.status == 405
        async with http.put(url + "/memory?trace=on") as answer:
            assert answer.status == 200
        assert "traced:" in (await get(http, url + "/memory"))[1]
        async with http.put(url + "/memory?trace=off") as answer:
            assert answer.status == 200
        async with http.put(url + "/memory?trace=maybe") as answer:
            assert answer.status == 400


async def test_a_port_that_is_taken_is_named_with_its_option(client: Client) -> None:
    async with Manager(client, endpoints=Endpoints(health=ANYWHERE)) as first:
        taken = first.urls["health"].removeprefix("http://")
        with pytest.raises(ConfigError, match=rf"metrics='{taken}': cannot listen on {taken}: .*choose another port"):
            await Manager(client, endpoints=Endpoints(health=ANYWHERE, metrics=taken)).start()


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        pytest.param(":8080", "", 8080, id="every interface"),
        pytest.param("127.0.0.1:0", "127.0.0.1", 0, id="any free port"),
        pytest.param("[::1]:443", "::1", 443, id="an IPv6 address"),
    ],
)
def test_address(text: str, host: str, port: int) -> None:
    assert Address.parse(text, "health") == Address(host, port)


@pytest.mark.parametrize("text", ["8080", "host", "::1:80", "host:http", "host:70000", "host:"])
def test_a_text_that_is_no_address_is_refused_with_its_option(text: str) -> None:
    with pytest.raises(ConfigError, match=r"metrics: .* is not an address; write"):
        Endpoints(metrics=text)


@pytest.mark.parametrize("address", [":6060", "0.0.0.0:6060", "example.org:6060"])
def test_debug_listens_on_loopback_only_by_default(address: str) -> None:
    with pytest.raises(ConfigError, match="reached from other machines"):
        Endpoints(debug=address)
    assert Endpoints(debug=address, debug_beyond_loopback=True).debug == address


def test_a_check_of_a_name_that_is_taken_is_refused(in_loop_server: TlsTestServer) -> None:
    with pytest.raises(ValueError, match='/readyz: a check named "informers" is there already'):
        Manager(Client(Transport(in_loop_server.config)), endpoints=Endpoints(readyz={"informers": lambda: None}))
