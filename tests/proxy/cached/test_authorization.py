"""Authorization of reads from the cache: the API server reviews each client, and its decisions are remembered for 10 seconds."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.endpoints import api_errors
from kubeloop.endpoints.access import ANONYMOUS
from kubeloop.proxy.identity import ClientIdentity
from kubeloop.proxy.upstream import bad_gateway
from tests.proxy.cached.scripted_api import ALL, FORWARDED, SHOP, A, B, CachedApiServer, names, proxy_of
from tests.proxy.samples import json_of


async def test_a_client_that_the_api_server_does_not_allow_is_forbidden_in_its_words() -> None:
    server = CachedApiServer(A, B)
    server.allows = lambda attributes, user: False
    async with proxy_of(server) as proxy:
        status = await json_of(await proxy(f"{SHOP}?resourceVersion=0"))
        assert status["code"] == 403
        message = 'pods is forbidden: User "ann" cannot list resource "pods" in API group "" in the namespace "shop": no role'
        assert status["message"] == message


async def test_each_verb_namespace_name_and_selector_is_reviewed_for_its_user() -> None:
    server = CachedApiServer(A, B)
    async with proxy_of(server) as proxy:
        await proxy(f"{SHOP}?resourceVersion=0&labelSelector=tier%3Dback")
        await proxy(f"{SHOP}/a?resourceVersion=0")
        await proxy(f"{ALL}?watch=true&resourceVersion=0")
        assert [kind for kind, _ in server.reviews] == ["SubjectAccessReview"] * 3
        assert {spec["user"] for _, spec in server.reviews} == {"ann"}
        attributes = [spec["resourceAttributes"] for _, spec in server.reviews]
        assert [(each["verb"], each["namespace"], each["name"]) for each in attributes] == [
            ("list", "shop", ""),
            ("get", "shop", "a"),
            ("watch", "", ""),
        ]
        assert attributes[0]["labelSelector"] == {"rawSelector": "tier=back"}


async def test_decisions_are_cached_for_ten_seconds() -> None:
    server = CachedApiServer(A, B)
    async with proxy_of(server) as proxy:
        for _ in range(3):
            await proxy(f"{ALL}?resourceVersion=0")
        assert len(server.reviews) == 1
        await proxy.clock.advance(11)
        server.allows = lambda attributes, user: False
        assert (await json_of(await proxy(f"{ALL}?resourceVersion=0")))["code"] == 403
        assert len(server.reviews) == 2


async def test_a_client_with_a_token_is_reviewed_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    server = CachedApiServer(A, B)
    async with proxy_of(server) as proxy:
        caller = ClientIdentity(None, (("Authorization", "Bearer t"),))

        async def identify(_: Any) -> ClientIdentity:
            return caller

        monkeypatch.setattr(proxy.pipeline._identity, "identify", identify)
        assert names(await json_of(await proxy(f"{ALL}?resourceVersion=0"))) == ["a", "b"]
        ((kind, spec),) = server.reviews
        assert kind == "SelfSubjectAccessReview"
        assert "user" not in spec
        posts = [request for request in proxy.upstream.requests if request.method == "POST"]
        assert ("Authorization", "Bearer t") in posts[0].headers
        await proxy.clock.advance(11)
        server.allows = lambda attributes, user: False
        assert 'User "tom" cannot list' in (await json_of(await proxy(f"{ALL}?resourceVersion=0")))["message"]


async def test_a_review_that_fails_is_no_permission() -> None:
    server = CachedApiServer(A, B)
    server.review_error = bad_gateway("no answer")
    async with proxy_of(server) as proxy:
        status = await json_of(await proxy(f"{ALL}?resourceVersion=0"))
        assert (status["code"], status["message"]) == (502, "no answer")


async def test_a_client_without_credentials_is_left_to_the_api_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may accept none (--anonymous-auth=false), even if its roles allow system:anonymous something."""
    server = CachedApiServer(A, B)
    async with proxy_of(server) as proxy:

        async def identify(_: Any) -> ClientIdentity:
            return ClientIdentity(ANONYMOUS)

        monkeypatch.setattr(proxy.pipeline._identity, "identify", identify)
        assert await json_of(await proxy(f"{ALL}?resourceVersion=0")) == FORWARDED
        assert server.reviews == []


async def test_a_proxy_that_may_not_ask_lets_the_api_server_check_the_client() -> None:
    server = CachedApiServer(A, B)
    server.review_error = api_errors.refusal(403, "Forbidden", "no reviews")
    async with proxy_of(server) as proxy:
        assert await json_of(await proxy(f"{ALL}?resourceVersion=0")) == FORWARDED
