"""Reads through the pipeline in caching mode: versions, forwarding, rules, failures and the life of a cache."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import UUID

import pytest

from kubeloop.endpoints import api_errors
from kubeloop.endpoints.metrics_text import Exposition
from kubeloop.proxy.cached import reader as reader_module
from kubeloop.proxy.cached.resource import EARLY_WATCHES
from kubeloop.proxy.upstream import bad_gateway
from kubeloop.serving.answer import Answer, StreamingResponse
from kubeloop.types import JSONObject
from tests.proxy.cached.caches import head_of, settled, summary_of
from tests.proxy.cached.scripted_api import ALL, FORWARDED, SHOP, A, B, CachedApiServer, names, proxy_of
from tests.proxy.rules.rule_texts import rule
from tests.proxy.samples import METADATA_LIST, TABLE, body_of, json_of, list_of, pod

HIDE_BACK = rule(match=[{"labelSelector": "tier=back"}])
MOVE = rule({"set": {"spec.nodeName": "hidden"}}, name="move")
HIDE_BY_PYTHON = rule({"python": {"callable": "tests.proxy.hiding:hide_back"}})


async def test_many_reads_cost_the_api_server_one_list() -> None:
    server = CachedApiServer(A, B)
    async with proxy_of(server) as proxy:
        for target in (ALL, SHOP, f"{ALL}?resourceVersion=0", f"{SHOP}?labelSelector=tier%3Dback", f"{SHOP}/a?resourceVersion=0"):
            reply = await proxy(target)
            assert isinstance(reply, Answer)
            assert reply.status == 200
        assert server.lists == 1
        assert not [target for target in proxy.upstream.targets if "pods" in target and "limit=1" not in target]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        pytest.param(ALL, ["a", "b"], id="all"),
        pytest.param("/api/v1/namespaces/other/pods", [], id="another namespace"),
        pytest.param(f"{SHOP}?resourceVersion=0&limit=1", ["a", "b"], id="the limit of a list at 0 is ignored"),
        pytest.param(f"{SHOP}?labelSelector=tier%3Dback", ["b"], id="a selector"),
        pytest.param(f"{SHOP}?fieldSelector=metadata.name%3Da", ["a"], id="a name"),
    ],
)
async def test_lists(target: str, expected: list[str]) -> None:
    async with proxy_of(CachedApiServer(A, B)) as proxy:
        tree = await json_of(await proxy(target))
        assert names(tree) == expected
        assert (tree["kind"], tree["apiVersion"], tree["metadata"]) == ("PodList", "v1", {"resourceVersion": "9"})


async def test_a_list_is_written_as_the_api_server_writes_it() -> None:
    async with proxy_of(CachedApiServer(A, B)) as proxy:
        body = await body_of(await proxy(f"{ALL}?resourceVersion=0"))
        assert body == list_of(A, B, version="9") + b"\n"


async def test_a_get_has_the_whole_object_and_a_missing_one_is_not_found() -> None:
    async with proxy_of(CachedApiServer(A, B)) as proxy:
        assert await json_of(await proxy(f"{SHOP}/a?resourceVersion=0")) == A
        missing = await json_of(await proxy(f"{SHOP}/x?resourceVersion=0"))
        assert missing["message"] == 'pods "x" not found'


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
@pytest.mark.parametrize("pods", [(A, B), ()])
async def test_a_list_of_metadata_has_the_version_that_the_client_asked_for(version: str, pods: tuple[JSONObject, ...]) -> None:
    async with proxy_of(CachedApiServer(*pods)) as proxy:
        tree = await json_of(await proxy(f"{ALL}?resourceVersion=0", Accept=METADATA_LIST.replace("v=v1", f"v={version}")))
        expected = f"meta.k8s.io/{version}"
        assert tree.get("kind") != "Forwarded"
        assert {tree["apiVersion"], *(item["apiVersion"] for item in tree["items"] or ())} == {expected}


async def test_metadata_only() -> None:
    async with proxy_of(CachedApiServer(A, B)) as proxy:
        tree = await json_of(await proxy(f"{ALL}?resourceVersion=0", Accept=METADATA_LIST))
        assert tree["kind"] == "PartialObjectMetadataList"
        assert {item["kind"] for item in tree["items"]} == {"PartialObjectMetadata"}
        assert names(tree) == ["a", "b"]


@pytest.mark.parametrize(
    ("target", "headers"),
    [
        pytest.param(f"{ALL}?limit=500", {}, id="pages"),
        pytest.param(ALL, {"Accept": TABLE}, id="Tables"),
        pytest.param(f"{SHOP}/a", {}, id="consistent gets"),
        pytest.param(f"{ALL}?fieldSelector=spec.other%3Dx", {}, id="unknown fields"),
        pytest.param(f"{SHOP}/a?resourceVersion=999", {}, id="gets of a version that the cache has not reached"),
    ],
)
async def test_what_the_cache_cannot_answer_is_forwarded(target: str, headers: dict[str, str]) -> None:
    async with proxy_of(CachedApiServer(A, B)) as proxy:
        assert await json_of(await proxy(target, **headers)) == FORWARDED


@pytest.mark.parametrize(
    "prepare",
    [
        pytest.param(lambda server: server.verbs.remove("watch"), id="a resource without watch"),
        pytest.param(lambda server: setattr(server, "unlisted", bad_gateway("no")), id="a list that fails"),
    ],
)
async def test_a_resource_that_cannot_be_cached_is_forwarded(prepare: Any) -> None:
    server = CachedApiServer(A, B)
    prepare(server)
    async with proxy_of(server) as proxy:
        assert await json_of(await proxy(f"{ALL}?resourceVersion=0")) == FORWARDED


async def test_a_failure_of_discovery_is_left_to_the_api_server_and_not_remembered() -> None:
    server = CachedApiServer(A, B)
    server.undiscovered = api_errors.refusal(503, "ServiceUnavailable", "service unavailable")
    async with proxy_of(server) as proxy:
        assert await json_of(await proxy(f"{ALL}?resourceVersion=0")) == FORWARDED
        server.undiscovered = None
        assert names(await json_of(await proxy(f"{ALL}?resourceVersion=0"))) == ["a", "b"]


async def test_watches_end_to_end() -> None:
    server = CachedApiServer(A, B)
    async with proxy_of(server, HIDE_BACK) as proxy:
        reply = await proxy(f"{ALL}?watch=true&timeoutSeconds=5")
        assert isinstance(reply, StreamingResponse)
        assert proxy.pipeline.cached is not None
        chunks = reply.chunks
        first = json.loads(await anext(chunks))
        assert summary_of(first) == "ADDED a 3"
        server.store.change(head_of(server.store, pod("b", version="12")))
        server.store.flush()
        assert summary_of(json.loads(await anext(chunks))) == "ADDED b 12"
        assert proxy.pipeline.cached.watchers == 1
        await proxy.clock.advance(6)
        with pytest.raises(StopAsyncIteration):
            await anext(chunks)
        assert proxy.pipeline.cached.watchers == 0


async def test_rules_hide_and_change_in_gets_and_lists() -> None:
    async with proxy_of(CachedApiServer(A, B), HIDE_BACK, MOVE, explain=True) as proxy:
        reply = await proxy(f"{ALL}?resourceVersion=0")
        assert isinstance(reply, Answer)
        tree = await json_of(reply)
        assert names(tree) == ["a"]
        assert tree["items"][0]["spec"]["nodeName"] == "hidden"
        assert "kind" not in tree["items"][0]
        assert ("Kubeloop-Rules", "r, move") in reply.headers
        assert (await json_of(await proxy(f"{SHOP}/a?resourceVersion=0")))["spec"]["nodeName"] == "hidden"
        assert (await json_of(await proxy(f"{SHOP}/b?resourceVersion=0")))["code"] == 404


async def test_rules_with_python_callables_are_forwarded() -> None:
    async with proxy_of(CachedApiServer(A, B), HIDE_BY_PYTHON) as proxy:
        await proxy(f"{ALL}?resourceVersion=0")
        assert proxy.upstream.targets == [f"GET {ALL}?resourceVersion=0"]


async def test_a_watch_from_before_the_cache_is_forwarded_up_to_a_number_in_a_minute() -> None:
    server = CachedApiServer(A, B)
    early = f"{ALL}?watch=true&resourceVersion=8"
    async with proxy_of(server) as proxy:
        for _ in range(EARLY_WATCHES):
            assert await json_of(await proxy(early)) == FORWARDED
        assert summary_of(await json_of(await proxy(early))) == "ERROR 410 Expired"
        await proxy.clock.advance(61)
        assert await json_of(await proxy(early)) == FORWARDED
        assert proxy.pipeline.cached is not None
        text = Exposition()
        proxy.pipeline.cached.write_metrics(text)
        name, labels = "kubeloop_proxy_cache_early_watches_total", 'group="",version="v1",resource="pods"'
        lines = text.text().splitlines()
        assert f'{name}{{{labels},outcome="forwarded"}} {EARLY_WATCHES + 1}' in lines
        assert f'{name}{{{labels},outcome="expired"}} 1' in lines


# ------------------------------------------------------------------------------------------------------------------- headers

EACH_READ = [
    pytest.param(f"{ALL}?resourceVersion=0", id="a list"),
    pytest.param(f"{SHOP}/a?resourceVersion=0", id="a get"),
    pytest.param(f"{SHOP}/x?resourceVersion=0", id="a get of a missing object"),
    pytest.param(f"{ALL}?watch=true&resourceVersion=9", id="a watch"),
]


def audit_ids(reply: Any) -> list[str]:
    return [value for name, value in reply.headers if name == "Audit-Id"]


@pytest.mark.parametrize("target", EACH_READ)
async def test_no_two_answers_have_the_same_audit_id(target: str) -> None:
    async with proxy_of(CachedApiServer(A, B)) as proxy:
        found = [audit_id for _ in range(2) for audit_id in audit_ids(await proxy(target))]
        assert len(set(found)) == 2
        assert {str(UUID(audit_id)) for audit_id in found} == set(found)


@pytest.mark.parametrize("target", EACH_READ)
async def test_a_client_names_the_audit_id_of_its_request_and_of_the_review(target: str) -> None:
    async with proxy_of(CachedApiServer(A, B)) as proxy:
        assert audit_ids(await proxy(target, **{"Audit-ID": "mine"})) == ["mine"]
        (review,) = [request for request in proxy.upstream.requests if request.method == "POST"]
        assert ("Audit-Id", "mine") in review.headers


async def test_a_refusal_has_the_audit_id_of_its_request() -> None:
    server = CachedApiServer(A, B)
    server.allows = lambda attributes, user: False
    async with proxy_of(server) as proxy:
        reply = await proxy(f"{ALL}?resourceVersion=0", **{"Audit-ID": "mine"})
        assert (await json_of(reply))["code"] == 403
        assert audit_ids(reply) == ["mine"]


# ------------------------------------------------------------------------------------------------------ failures and its life


async def test_while_the_api_server_is_away_reads_at_0_go_on_and_consistent_ones_fail() -> None:
    server = CachedApiServer(A, B)
    async with proxy_of(server) as proxy:
        await proxy(f"{ALL}?resourceVersion=0")
        server.away = True
        assert names(await json_of(await proxy(f"{ALL}?resourceVersion=0"))) == ["a", "b"]
        assert (await json_of(await proxy(ALL)))["code"] == 502


async def test_a_version_that_the_api_server_has_not_reached_is_too_large_after_three_seconds() -> None:
    server = CachedApiServer(A, B)
    async with proxy_of(server) as proxy:
        task = asyncio.create_task(proxy(f"{ALL}?resourceVersion=99"))
        await settled()
        await proxy.clock.advance(1)
        await settled()
        assert not task.done()
        await proxy.clock.advance(3)
        status = await json_of(await task)
        assert (status["code"], status["message"]) == (504, "Timeout: Too large resource version: 99, current: 9")
        assert status["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


async def test_an_unused_cache_is_removed_and_begins_again() -> None:
    server = CachedApiServer(A, B)
    async with proxy_of(server) as proxy:
        await proxy(f"{ALL}?resourceVersion=0")
        cached = proxy.pipeline.cached
        assert cached is not None
        assert len(cached._resources) == 1
        await proxy.clock.advance(reader_module.IDLE + 61)
        assert len(cached._resources) == 0
        assert names(await json_of(await proxy(f"{ALL}?resourceVersion=0"))) == ["a", "b"]
        assert server.lists == 2


@pytest.mark.parametrize("code", [403, 404])
async def test_a_resource_that_is_gone_is_no_longer_shown(code: int) -> None:
    server = CachedApiServer(A, B)
    async with proxy_of(server) as proxy:
        watch = await proxy(f"{ALL}?watch=true&resourceVersion=9")
        assert isinstance(watch, StreamingResponse)
        waiting = asyncio.ensure_future(anext(aiter(watch.chunks)))
        await settled()
        server.store.failed(api_errors.refusal(code, "Gone", "no such resource"))
        assert summary_of(json.loads(await waiting)) == "ERROR 410 Expired"
        assert await json_of(await proxy(f"{ALL}?resourceVersion=0")) == FORWARDED
        await proxy.clock.advance(31)
        assert names(await json_of(await proxy(f"{ALL}?resourceVersion=0"))) == ["a", "b"]
        assert server.lists == 2


async def test_a_request_that_is_forbidden_begins_no_cache() -> None:
    server = CachedApiServer(A, B)
    server.allows = lambda attributes, user: False
    async with proxy_of(server) as proxy:
        assert (await json_of(await proxy(f"{ALL}?resourceVersion=0")))["code"] == 403
        assert server.lists == 0


async def test_a_watch_keeps_its_cache() -> None:
    server = CachedApiServer(A, B)
    async with proxy_of(server) as proxy:
        reply = await proxy(f"{ALL}?watch=true&resourceVersion=9&timeoutSeconds=3600")
        assert isinstance(reply, StreamingResponse)
        waiting = asyncio.ensure_future(anext(reply.chunks))
        await settled()
        await proxy.clock.advance(reader_module.IDLE + 61)
        assert proxy.pipeline.cached is not None
        assert len(proxy.pipeline.cached._resources) == 1
        waiting.cancel()


async def test_metrics() -> None:
    server = CachedApiServer(A, B)
    async with proxy_of(server) as proxy:
        await proxy(f"{ALL}?resourceVersion=0")
        await proxy(f"{ALL}?limit=5")
        assert proxy.pipeline.cached is not None
        text = Exposition()
        proxy.pipeline.cached.write_metrics(text)
        lines = text.text().splitlines()
        labels = '{group="",version="v1",resource="pods"}'
        assert f"kubeloop_proxy_cache_objects{labels} 2" in lines
        assert f"kubeloop_proxy_cache_watchers{labels} 0" in lines
        assert f"kubeloop_proxy_cache_upstream_watches{labels} 1" in lines
        assert 'kubeloop_proxy_cache_requests_total{outcome="cached"} 1' in lines
        assert 'kubeloop_proxy_cache_requests_total{outcome="forwarded"} 1' in lines


async def test_a_reload_ends_the_watches_of_concerned_resources() -> None:
    server = CachedApiServer(A, B)
    async with proxy_of(server, HIDE_BACK) as proxy:
        reply = await proxy(f"{ALL}?watch=true&resourceVersion=9")
        assert isinstance(reply, StreamingResponse)
        waiting = asyncio.ensure_future(anext(reply.chunks))
        await settled()
        assert proxy.pipeline.cached is not None
        assert proxy.pipeline.cached.expire(lambda *key: key == ("", "v1", "secrets")) == 0
        assert proxy.pipeline.cached.expire(lambda *key: key == ("", "v1", "pods")) == 1
        assert summary_of(json.loads(await waiting)) == "ERROR 410 Expired"


@pytest.mark.parametrize(
    "target",
    [
        pytest.param(f"{ALL}?resourceVersion=0", id="a list"),
        pytest.param(f"{ALL}?watch=true&resourceVersion=9", id="a watch"),
        pytest.param(f"{SHOP}/a?resourceVersion=0", id="a get"),
        pytest.param(f"{ALL}?watch=true&resourceVersion=8", id="a watch from before the cache, which is forwarded"),
    ],
)
async def test_a_read_during_whose_review_the_rules_change_has_to_be_sent_again(target: str) -> None:
    server = CachedApiServer(A, B)
    async with proxy_of(server, HIDE_BACK) as proxy:

        def allow(*_: Any) -> bool:
            proxy.reload(MOVE)
            return True

        server.allows = allow
        assert (await json_of(await proxy(target)))["code"] == 410


async def test_a_watch_that_continues_a_list_under_earlier_rules_has_to_list_again() -> None:
    server = CachedApiServer(A, B)
    async with proxy_of(server, HIDE_BACK) as proxy:
        await proxy(f"{ALL}?resourceVersion=0")
        proxy.reload(MOVE)
        assert (await json_of(await proxy(f"{ALL}?watch=true&resourceVersion=9")))["code"] == 410
        await proxy(f"{ALL}?resourceVersion=0")
        assert isinstance(await proxy(f"{ALL}?watch=true&resourceVersion=9"), StreamingResponse)
