"""Lists over the wire: selectors, pages from one snapshot, versions, forms."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest

from kubeloop.timing import FakeClock
from tests.apiserver.conftest import CONFIGMAPS, MERGE, PARTIAL, PARTIAL_LIST, PODS, TABLE, Api, Reply, running_api


def names(answer: Reply) -> list[str]:
    assert answer.status == 200, answer.text
    return [one["metadata"]["name"] for one in answer.body["items"] or []]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param("labelSelector=app=a", ["one"], id="a label with a value"),
        pytest.param("labelSelector=app!=a", ["three", "two"], id="a label without a value counts as different"),
        pytest.param("labelSelector=app%20in%20(a,b)", ["one", "two"], id="a set of values"),
        pytest.param("labelSelector=!app", ["three"], id="no such label"),
        pytest.param("fieldSelector=metadata.name=two", ["two"], id="a name"),
        pytest.param("fieldSelector=metadata.name!=two,metadata.namespace=default", ["one", "three"], id="two fields"),
        pytest.param("labelSelector=app&fieldSelector=metadata.name!=one", ["two"], id="labels and fields together"),
        pytest.param("labelSelector=none=x", [], id="nothing that is there"),
    ],
)
async def test_a_selector_selects_by(api: Api, query: str, expected: list[str]) -> None:
    await api.create("one", metadata={"labels": {"app": "a"}})
    await api.create("two", metadata={"labels": {"app": "b"}})
    await api.create("three")
    assert names(await api("GET", f"{CONFIGMAPS}?{query}")) == expected


async def test_pods_are_selected_by_the_fields_of_pods(api: Api) -> None:
    for name, node in (("a", "n1"), ("b", "n2")):
        await api.create(name, PODS, spec={"nodeName": node, "containers": [{"name": "c", "image": "x"}]})
    assert names(await api("GET", f"{PODS}?fieldSelector=spec.nodeName=n1")) == ["a"]
    assert (await api("GET", f"{PODS}?fieldSelector=spec.priority=0")).message == "field label not supported: spec.priority"


async def test_pages_show_one_snapshot_whatever_changes_between_them(api: Api) -> None:
    for name in "abcde":
        await api.create(name)
    first = await api("GET", f"{CONFIGMAPS}?limit=2")
    metadata = first.body["metadata"]
    assert (names(first), metadata["remainingItemCount"]) == (["a", "b"], 3)
    await api("DELETE", f"{CONFIGMAPS}/c")
    await api.create("bb")
    second = await api("GET", f"{CONFIGMAPS}?limit=2&continue={metadata['continue']}")
    assert (names(second), second.body["metadata"]["remainingItemCount"], second.version) == (["c", "d"], 1, first.version)
    last = await api("GET", f"{CONFIGMAPS}?limit=2&continue={second.body['metadata']['continue']}")
    assert (names(last), set(last.body["metadata"])) == (["e"], {"resourceVersion"})


async def test_a_page_of_a_selection_is_full_and_does_not_say_how_many_remain(api: Api) -> None:
    for number in range(12):
        await api.create(f"n{number:02}", metadata={"labels": {"odd": str(number % 2)}})
    first = await api("GET", f"{CONFIGMAPS}?limit=4&labelSelector=odd=1")
    assert names(first) == ["n01", "n03", "n05", "n07"]
    assert "remainingItemCount" not in first.body["metadata"]
    rest = await api("GET", f"{CONFIGMAPS}?limit=4&labelSelector=odd=1&continue={first.body['metadata']['continue']}")
    assert names(rest) == ["n09", "n11"]


async def test_a_page_of_a_compacted_snapshot_has_expired_and_offers_a_token_to_go_on_with(api: Api) -> None:
    for name in "abc":
        await api.create(name)
    token = (await api("GET", f"{CONFIGMAPS}?limit=1")).body["metadata"]["continue"]
    await api.create("d")
    assert (await api("POST", "/debug/compact")).status == 200
    expired = await api("GET", f"{CONFIGMAPS}?limit=2&continue={token}")
    assert (expired.status, expired.body["reason"]) == (410, "Expired")
    assert names(await api("GET", f"{CONFIGMAPS}?limit=2&continue={expired.body['metadata']['continue']}")) == ["b", "c"]


async def test_a_token_and_a_version_exclude_each_other(api: Api) -> None:
    for name in "ab":
        await api.create(name)
    token = (await api("GET", f"{CONFIGMAPS}?limit=1")).body["metadata"]["continue"]
    answer = await api("GET", f"{CONFIGMAPS}?limit=1&continue={token}&resourceVersion=5")
    assert (answer.status, answer.message) == (400, "specifying resource version is not allowed when using continue")


@pytest.mark.parametrize(
    ("tree", "why"),
    [
        pytest.param({"v": "v9", "rv": 1, "start": "a"}, "server does not recognize this encoded version v9", id="another version"),
        pytest.param(
            {"v": "meta.k8s.io/v1", "rv": 0, "start": "a"},
            "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
            id="no revision",
        ),
        pytest.param({"v": "meta.k8s.io/v1", "rv": 1, "start": ""}, "encoded start key empty (version meta.k8s.io/v1)", id="no key"),
        pytest.param({"v": "meta.k8s.io/v1", "rv": 1, "start": "../x"}, "../x", id="a way out"),
    ],
)
async def test_a_token_is_refused_that_has(api: Api, tree: dict[str, object], why: str) -> None:
    token = base64.urlsafe_b64encode(json.dumps(tree).encode()).decode().rstrip("=")
    answer = await api("GET", f"{CONFIGMAPS}?continue={token}")
    assert (answer.status, answer.message) == (400, f"invalid continue token: continue key is not valid: {why}")


async def test_a_list_at_exactly_a_version_shows_it_and_at_least_a_version_the_newest(api: Api) -> None:
    first = await api.create("a")
    await api.create("b")
    assert names(await api("GET", f"{CONFIGMAPS}?resourceVersion={first.version}&resourceVersionMatch=Exact")) == ["a"]
    assert names(await api("GET", f"{CONFIGMAPS}?resourceVersion={first.version}&resourceVersionMatch=NotOlderThan")) == ["a", "b"]
    assert names(await api("GET", f"{CONFIGMAPS}?resourceVersion={first.version}")) == ["a", "b"]
    assert names(await api("GET", f"{CONFIGMAPS}?resourceVersion=0&limit=1")) == ["a", "b"]


async def test_a_compacted_version_has_expired(api: Api) -> None:
    first = await api.create("a")
    await api.create("b")
    await api("POST", "/debug/compact")
    answer = await api("GET", f"{CONFIGMAPS}?resourceVersion={first.version}&resourceVersionMatch=Exact")
    assert (answer.status, answer.message) == (410, "The resourceVersion for the provided list is too old.")


async def test_a_version_to_come_is_waited_for(api: Api) -> None:
    newest = int((await api.create("a")).version)
    waiting = asyncio.create_task(api("GET", f"{CONFIGMAPS}?resourceVersion={newest + 1}"))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    await api.create("b")
    assert names(await waiting) == ["a", "b"]


async def test_a_version_that_does_not_come_in_three_seconds_is_too_large() -> None:
    clock = FakeClock()
    async with running_api(clock) as api:
        waiting = asyncio.create_task(api("GET", f"{CONFIGMAPS}/a?resourceVersion=99999999"))
        while not waiting.done():
            await asyncio.sleep(0.005)
            await clock.advance(1)
        answer = await waiting
    assert (answer.status, answer.headers["Retry-After"]) == (504, "1")
    assert answer.message.startswith("Timeout: Too large resource version: 99999999, current: ")


async def test_items_of_a_typed_list_leave_out_kind_and_version(api: Api) -> None:
    await api.create("a")
    listed = (await api("GET", CONFIGMAPS)).body
    assert (listed["kind"], set(listed["items"][0])) == ("ConfigMapList", {"metadata"})


async def test_tables_and_metadata_are_given_on_request(api: Api) -> None:
    await api.create("a", data={"k": "v"})
    table = (await api("GET", CONFIGMAPS, accept=TABLE)).body
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert table["rows"][0]["cells"][:2] == ["a", 1]
    older = (await api("GET", CONFIGMAPS, accept=TABLE.replace("v=v1", "v=v1beta1"))).body
    assert (older["apiVersion"], older["rows"][0]["object"]["apiVersion"]) == ("meta.k8s.io/v1beta1", "meta.k8s.io/v1beta1")
    assert set((await api("GET", f"{CONFIGMAPS}/a", accept=PARTIAL)).body) == {"kind", "apiVersion", "metadata"}
    assert (await api("GET", CONFIGMAPS, accept=PARTIAL_LIST)).body["items"][0]["kind"] == "PartialObjectMetadata"


async def test_events_of_both_groups_are_the_same_objects(api: Api) -> None:
    await api.create(
        "e",
        "/api/v1/namespaces/default/events",
        involvedObject={"kind": "Pod", "name": "p", "namespace": "default"},
        message="hello",
        count=3,
    )
    there = (await api("GET", "/apis/events.k8s.io/v1/namespaces/default/events/e")).body
    assert (there["regarding"]["name"], there["note"], there["deprecatedCount"]) == ("p", "hello", 3)
    changed = await api("PATCH", "/apis/events.k8s.io/v1/namespaces/default/events/e", {"metadata": {"labels": {"a": "b"}}}, content=MERGE)
    assert changed.status == 200, changed.text
    here = (await api("GET", "/api/v1/namespaces/default/events/e")).body
    assert (here["metadata"]["labels"], here["message"]) == ({"a": "b"}, "hello")
    assert names(await api("GET", "/apis/events.k8s.io/v1/events")) == ["e"]


async def test_an_autoscaler_is_one_object_in_both_versions(api: Api) -> None:
    path = "/apis/autoscaling/{}/namespaces/default/horizontalpodautoscalers"
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
    made = await api.create("h", path.format("v1"), spec={"scaleTargetRef": target, "maxReplicas": 5, "targetCPUUtilizationPercentage": 60})
    assert made.body["status"] == {"currentReplicas": 0, "desiredReplicas": 0}
    newer = (await api("GET", path.format("v2") + "/h")).body
    assert newer["spec"]["metrics"] == [
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}}
    ]
    assert newer["metadata"]["resourceVersion"] == made.version
    await api("PATCH", path.format("v1") + "/h", {"spec": {"targetCPUUtilizationPercentage": 50}}, content=MERGE)
    assert (await api("GET", path.format("v2"))).body["items"][0]["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] == 50


async def test_a_large_answer_is_compressed_for_clients_that_accept_it(api: Api) -> None:
    await api.create("big", data={"k": "x" * 200_000})
    assert (await api("GET", f"{CONFIGMAPS}/big", Accept_Encoding="gzip")).headers["Content-Encoding"] == "gzip"
    assert "Content-Encoding" not in (await api("GET", f"{CONFIGMAPS}/big", Accept_Encoding="identity")).headers


async def test_people_get_indented_json(api: Api) -> None:
    assert (await api("GET", CONFIGMAPS, User_Agent="curl/8.0")).text.startswith('{\n  "kind": "ConfigMapList",\n')
    assert (await api("GET", f"{CONFIGMAPS}?pretty=true")).text.startswith("{\n")
    assert (await api("GET", CONFIGMAPS)).text.startswith('{"kind":')
