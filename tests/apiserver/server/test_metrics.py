"""``/metrics``: its series and their names, the number of series, and the right to read it."""

from __future__ import annotations

import re

import pytest

from kubeloop.endpoints.metrics_text import Exposition, Histogram
from tests.apiserver.conftest import CONFIGMAPS, Api

MAPS = 'component="apiserver",group="",resource="configmaps"'


async def scrape(api: Api, path: str = "/metrics") -> dict[str, float]:
    """Samples by name and labels."""
    answer = await api("GET", path)
    assert (answer.status, answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")) == (200, True)
    samples = {}
    for line in answer.text.splitlines():
        if not line.startswith("#"):
            assert re.fullmatch(r"[a-z_]+(\{([a-z_]+=\"[^\"]*\",?)+\})? -?[0-9.e+-]+", line), line
            name, _, value = line.rpartition(" ")
            samples[name] = float(value)
    return samples


async def test_requests_are_counted_by_what_they_were_and_how_they_ended(api: Api) -> None:
    await api.create("a")
    await api("GET", f"{CONFIGMAPS}/a")
    await api("GET", f"{CONFIGMAPS}/none")
    await api("GET", CONFIGMAPS)
    await api("GET", "/api/v1/configmaps", token="alice-token")
    await api("POST", f"{CONFIGMAPS}?dryRun=All", {"metadata": {"name": "b"}})
    found = await scrape(api)
    rest = 'subresource="",'

    def count(code: int, verb: str, scope: str, dry_run: str = "") -> float:
        labels = f'code="{code}",dry_run="{dry_run}",{MAPS},scope="{scope}",{rest}verb="{verb}",version="v1"'
        return found[f"apiserver_request_total{{{labels}}}"]

    assert count(201, "POST", "resource") == 1
    assert count(201, "POST", "resource", "All") == 1
    assert count(200, "GET", "resource") == 1
    assert count(404, "GET", "resource") == 1
    assert count(200, "LIST", "namespace") == 1
    durations = f'dry_run="",{MAPS},scope="resource",{rest}verb="GET",version="v1"'
    assert found[f"apiserver_request_duration_seconds_count{{{durations}}}"] == 2
    assert found[f'apiserver_request_duration_seconds_bucket{{{durations},le="+Inf"}}'] == 2
    assert found[f'apiserver_response_sizes_count{{{MAPS},scope="namespace",{rest}verb="LIST",version="v1"}}'] == 1


async def test_invented_paths_do_not_add_metrics(api: Api) -> None:
    await api("GET", "/nosuch/0")
    before = len(await scrape(api))
    for number in range(20):
        await api("GET", f"/nosuch/{number}")
        await api("GET", f"/apis/nosuch-{number}/v1/things")
        await api("BREW", f"/apis/apps/v1/nosuch-{number}")
    series = api.server.api.operation.metrics.series
    assert not [one for one in series if "nosuch" in str(one.labels)]
    assert len(await scrape(api)) < before + 200


async def test_open_streams_and_sent_events_are_counted(api: Api) -> None:
    watches = f'apiserver_longrunning_requests{{{MAPS},scope="namespace",subresource="",verb="WATCH",version="v1"}}'
    async with api.watch(f"{CONFIGMAPS}?watch=1") as events:
        await api.create("a")
        async for _ in events:
            break
        found = await scrape(api)
        assert found[watches] == 1
        assert found['apiserver_watch_events_total{group="",resource="configmaps",version="v1"}'] >= 1


async def test_stored_objects_admission_flow_control_health_and_process_have_metrics(api: Api) -> None:
    await api.create("a")
    found = await scrape(api)
    assert found['apiserver_storage_objects{resource="configmaps"}'] >= 1
    assert found['apiserver_resource_objects{group="apps",resource="deployments"}'] == 0
    step = 'operation="CREATE",rejected="false",type="admit"'
    assert found[f"apiserver_admission_step_admission_duration_seconds_count{{{step}}}"] >= 1
    assert found['apiserver_flowcontrol_nominal_limit_seats{priority_level="workload-low"}'] == 245
    assert found['apiserver_flowcontrol_dispatched_requests_total{flow_schema="exempt",priority_level="exempt"}'] >= 1
    assert found['apiserver_current_inflight_requests{request_kind="readOnly"}'] == 1
    assert found['kubernetes_healthcheck{name="shutdown",type="readyz"}'] == 1
    assert found['authentication_attempts{result="success"}'] >= 1
    assert found["process_cpu_seconds_total"] > 0


async def test_service_level_indicators_have_a_separate_path(api: Api) -> None:
    assert set(await scrape(api, "/metrics/slis")) >= {'kubernetes_healthcheck{name="etcd",type="livez"}'}


async def test_a_user_without_the_right_reads_no_metrics(api: Api) -> None:
    refused = await api("GET", "/metrics", token="alice-token")
    assert (refused.status, refused.message) == (403, 'forbidden: User "alice" cannot get path "/metrics"')


def test_the_format_escapes_and_accumulates() -> None:
    out = Exposition()
    found = Histogram((1.0, 2.5))
    found.counts, found.sum = [1, 2, 3], 9.5
    out.histogram("h", "Help.", [({"a": 'x"\n\\'}, found)])
    out.counter("nothing", "Is left out.", [])
    assert out.text().splitlines() == [
        "# HELP h Help.",
        "# TYPE h histogram",
        'h_bucket{a="x\\"\\n\\\\",le="1"} 1',
        'h_bucket{a="x\\"\\n\\\\",le="2.5"} 3',
        'h_bucket{a="x\\"\\n\\\\",le="+Inf"} 6',
        'h_sum{a="x\\"\\n\\\\"} 9.5',
        'h_count{a="x\\"\\n\\\\"} 6',
    ]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        pytest.param("GET", "/api/v1/namespaces/default/configmaps/a/{}", id="subresources"),
        pytest.param("GET", "/api/v1/namespaces/default/{}", id="resources"),
        pytest.param("GET", "/apis/{}.example.com/v1/x", id="groups"),
        pytest.param("GET", "/{}", id="paths"),
        pytest.param("{}", "/api/v1/namespaces/default/configmaps", id="methods"),
    ],
)
async def test_requests_for_unknown_paths_and_methods_share_one_series(api: Api, method: str, path: str) -> None:
    words = [f"thought{letter}" for letter in "abcdefgh"]
    for word in words:
        assert (await api(method.format(word.upper()), path.format(word))).status in (404, 405)
    counted = (await api("GET", "/metrics")).text
    assert "apiserver_request_total" in counted
    assert "thought" not in counted.lower()
