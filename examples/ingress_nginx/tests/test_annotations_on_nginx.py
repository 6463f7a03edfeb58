"""What annotations change, seen by a client of the whole controller with real NGINX, with Lua and without."""

from __future__ import annotations

import asyncio
import base64
from collections import Counter
from typing import Any

import pytest

from examples.ingress_nginx.tests.objects import ingress
from examples.ingress_nginx.tests.stage import ControllerStage
from kubeloop.api.core.v1 import Secret


async def test_a_canary_by_header_cookie_and_weight(at: ControllerStage) -> None:
    await at.web("main")
    await at.web("new")
    await at.put(
        ingress("main", "shop.test / main:80"),
        ingress("canary", "shop.test / new:80", canary="true", canary_by_header="X-New", canary_by_cookie="new", canary_weight="50"),
    )
    await at.answers("new", "shop.test", headers={"X-New": "always"})

    async def chosen(**headers: str) -> set[str]:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return {await at.backend_of("shop.test", headers=sent) for _ in range(5)}

    assert await chosen(X_New="always", Cookie="new=never") == {"new"}
    assert await chosen(X_New="never", Cookie="new=always") == {"main"}
    assert await chosen(Cookie="new=always") == {"new"}
    assert await chosen(Cookie="a=b; new=never") == {"main"}
    shares = Counter([await at.backend_of("shop.test") for _ in range(200)])
    assert 50 < shares["new"] < 150
    assert shares.total() == shares["new"] + shares["main"]
    await at.put(ingress("canary", "shop.test / new:80", canary="true", canary_weight="100"))

    async def all_of_them() -> set[str]:
        return {await at.backend_of("shop.test") for _ in range(20)}

    await at.until(all_of_them, {"new"})
    await at.put(ingress("canary", "shop.test / new:80", canary="true", canary_weight="0"))
    await at.until(all_of_them, {"main"})


async def test_basic_authentication(at: ControllerStage) -> None:
    await at.web()
    await at.put(ingress("web", "shop.test / web:80", auth_type="basic", auth_secret="users", auth_realm="Goods and more"))
    await at.answers("503", "shop.test")
    await at.warning("web", "shop/users does not exist")
    secret = Secret.from_dict({"metadata": {"name": "users", "namespace": "shop"}})
    secret.data = {"auth": await _htpasswd("alice", "wonder")}
    await at.put(secret)
    await at.answers("401", "shop.test")
    assert (await at.get("shop.test")).header("www-authenticate").startswith("Basic realm=")
    assert await at.backend_of("shop.test", headers=_credentials("alice", "wonder")) == "web"
    assert await at.backend_of("shop.test", headers=_credentials("alice", "wrong")) == "401"
    secret.data = {"auth": await _htpasswd("bob", "builder")}
    await at.put(secret)
    await at.answers("web", "shop.test", headers=_credentials("bob", "builder"))
    assert await at.backend_of("shop.test", headers=_credentials("alice", "wonder")) == "401"


def _credentials(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


async def _htpasswd(user: str, password: str) -> bytes:
    process = await asyncio.create_subprocess_exec("openssl", "passwd", "-apr1", password, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    return f"{user}:".encode() + output


@pytest.mark.parametrize(
    ("annotations", "status"),
    [
        pytest.param({"whitelist_source_range": "10.0.0.0/8"}, "403", id="another network is allowed"),
        pytest.param({"whitelist_source_range": "10.0.0.0/8, 127.0.0.1"}, "web", id="the client's address is allowed"),
        pytest.param({"denylist_source_range": "127.0.0.0/8"}, "403", id="the client's network is denied"),
        pytest.param({"whitelist_source_range": "everybody"}, "503", id="a list that cannot be read refuses all"),
    ],
)
async def test_lists_of_networks(at: ControllerStage, annotations: dict[str, Any], status: str) -> None:
    await at.web()
    await at.put(ingress("web", "shop.test / web:80", **annotations))
    await at.answers(status, "shop.test")


async def test_cors(at: ControllerStage) -> None:
    await at.web()
    await at.put(ingress("web", "shop.test / web:80", enable_cors="true", cors_allow_origin="https://app.example.com"))
    origin = {"Origin": "https://app.example.com"}
    await at.answers("web", "shop.test")
    answer = await at.get("shop.test", headers=origin)
    assert answer.header("access-control-allow-origin") == "https://app.example.com"
    preflight = await at.get("shop.test", method="OPTIONS", headers={**origin, "Access-Control-Request-Method": "PUT"})
    assert (preflight.status, preflight.header("access-control-allow-credentials")) == (204, "true")
    assert "PUT" in preflight.header("access-control-allow-methods")
    other = await at.get("shop.test", headers={"Origin": "https://evil.example.com"})
    assert other.header("access-control-allow-origin") == ""


async def test_limits(at: ControllerStage) -> None:
    await at.web()
    await at.put(ingress("web", "shop.test / web:80", limit_rpm="1", limit_burst_multiplier="3"))
    await at.answers("web", "shop.test")

    async def found() -> bool:
        return await at.backend_of("shop.test") in ("429", "503")

    await at.until(found)
    await at.put(ingress("web", "shop.test / web:80"))
    await at.answers("web", "shop.test")


@pytest.mark.parametrize(
    ("annotations", "target", "status", "location"),
    [
        pytest.param({"permanent_redirect": "https://new.example.com/x"}, "/a", 301, "https://new.example.com/x", id="to another URL"),
        pytest.param({"permanent_redirect": "https://n.io", "permanent_redirect_code": "308"}, "/", 308, "https://n.io", id="with a code"),
        pytest.param({"temporal_redirect": "https://new.example.com"}, "/a", 302, "https://new.example.com", id="for a while"),
        pytest.param({"force_ssl_redirect": "true"}, "/a?b=c", 308, "https://shop.test/a?b=c", id="to https without a certificate"),
        pytest.param({"app_root": "/start"}, "/", 302, "/start", id="from the root to the app"),
    ],
)
async def test_redirects(at: ControllerStage, annotations: dict[str, Any], target: str, status: int, location: str) -> None:
    await at.web()
    await at.put(ingress("web", "shop.test / web:80", **annotations))

    async def found() -> tuple[int, str]:
        answer = await at.get("shop.test", target)
        where = answer.header("location")
        return answer.status, where if location.startswith("http") else where.removeprefix("http://shop.test")

    await at.until(found, (status, location))


async def test_a_body_that_is_too_large_is_413(at: ControllerStage) -> None:
    await at.web()
    await at.put(ingress("web", "shop.test / web:80", "big.test / web:80", proxy_body_size="1k"))
    await at.answers("web", "shop.test")
    assert await at.backend_of("shop.test", method="POST", body=b"x" * 1024) == "web"
    assert await at.backend_of("shop.test", method="POST", body=b"x" * 1025) == "413"
    await at.put(ingress("web", "shop.test / web:80", proxy_body_size="2k"))
    await at.answers("web", "shop.test", method="POST", body=b"x" * 1025)


@pytest.mark.parametrize(
    ("rules", "annotations", "words"),
    [
        pytest.param(["evil.test / web:80"], {"rewrite_target": "/x; } server { listen 9; "}, "rewrite-target", id="a rewrite with blocks"),
        pytest.param(["evil.test / web:80"], {"auth_url": "http://x/;\n}\nlua"}, "auth-url", id="a URL with lines"),
        pytest.param(["evil.test / web:80"], {"proxy_body_size": "1m; return 200"}, "proxy-body-size", id="a size with a directive"),
        pytest.param(["evil.test / web:80"], {"configuration_snippet": "return 200;"}, "configuration-snippet", id="a snippet"),
        pytest.param(["evil.test / web:80"], {"upstream_vhost": 'a"; return 200 "$host'}, "upstream-vhost", id="a host with a quote"),
        pytest.param(["evil.test / web:80"], {"server_alias": "a.test; } location / { }"}, "server-alias", id="an alias with blocks"),
        pytest.param(['evil.test ~/a"{b;}# web:80'], {"use_regex": "true"}, "InvalidPath", id="an expression with a quote"),
        pytest.param(["evil.test ~/(a web:80"], {"use_regex": "true"}, "InvalidPath", id="an expression without an end"),
        pytest.param(["evil.test ~/a\\K(?<=b web:80"], {"use_regex": "true"}, "InvalidPath", id="an expression that only looks right"),
    ],
)
async def test_hostile_ingresses_change_nothing_else(
    at: ControllerStage, rules: list[str], annotations: dict[str, Any], words: str
) -> None:
    await at.web()
    await at.put(ingress("good", "shop.test / web:80"))
    await at.answers("web", "shop.test")
    await at.put(ingress("evil", *rules, **annotations))
    await at.warning("evil", words)
    await at.handled()
    assert await at.backend_of("shop.test") == "web"
    assert not [report.error for report in at.reports if report.error]
    text = (at.process.folder / "nginx.conf").read_text()
    assert "listen 9" not in text
    assert "return 200;" not in text
