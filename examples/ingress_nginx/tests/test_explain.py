"""The explanation of requests: a table of clusters, and the command on a server."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from examples.ingress_nginx.explain import explain
from examples.ingress_nginx.explain_command import check_cluster, explain_from_cluster
from examples.ingress_nginx.ingress.builder import BuilderOptions, IngressBuilder
from examples.ingress_nginx.tests.objects import ClusterTable, ingress, ingress_class, service, slice_of, tls_secret
from kubeloop import Client
from kubeloop.api.core.v1 import ConfigMap, Namespace, Secret
from kubeloop.api.networking.v1 import Ingress
from kubeloop.meta import Forbidden, ObjectMeta, Resource
from kubeloop.testing import HandlerServer, LocalCluster, on

WEB = (service("web"), slice_of("web", "10.0.0.1", "10.0.0.2"))
API = (service("api"), slice_of("api", "10.0.0.3"))


def text_of(cluster: ClusterTable, host: str, path: str = "/") -> str:
    builder = IngressBuilder(cluster)
    builder.rebuild()
    return explain(builder, cluster, host, path).to_text()


SERVED = [
    pytest.param(
        [*WEB, ingress("web", "a.test / web:80")],
        "a.test/x",
        ["answer       an endpoint of shop/web:80", "Ingress shop/web  spec.rules[0].http.paths[0]", "2 endpoints", "10.0.0.2:8080"],
        id="a prefix leads to the endpoints of a service",
    ),
    pytest.param(
        [*WEB, *API, ingress("web", "a.test / web:80"), ingress("api", "a.test /api api:80")],
        "a.test/api/v1",
        ["path         /api (Prefix)", "Ingress shop/web  path / (Prefix) is less specific than /api"],
        id="the longer path wins",
    ),
    pytest.param(
        [*WEB, *API, ingress("web", "a.test / web:80"), ingress("api", "a.test /api api:80")],
        "a.test/apis",
        ["path         / (Prefix)", "path /api (Prefix) does not match: a prefix matches whole elements between slashes"],
        id="a prefix matches whole elements",
    ),
    pytest.param(
        [*WEB, *API, ingress("web", "a.test / web:80"), ingress("api", "a.test =/Api api:80")],
        "a.test/api",
        ["path /Api (Exact) does not match: the case differs"],
        id="paths have a case",
    ),
    pytest.param(
        [*WEB, *API, ingress("young", "a.test / api:80", age=9), ingress("old", "a.test / web:80")],
        "a.test/",
        ["Ingress shop/old", "Ingress shop/young  path / (Prefix) is already defined in Ingress shop/old, which is older"],
        id="the older Ingress wins",
    ),
    pytest.param(
        [*WEB, ingress("web", "*.test / web:80")],
        "a.b.test/",
        ["404: no path of an Ingress matches", "Ingress shop/web  host *.test: the star stands for one label only"],
        id="the star stands for one label",
    ),
    pytest.param(
        [*WEB, *API, ingress("web", "*.test / web:80"), ingress("api", "a.test / api:80")],
        "A.test:8443/",
        ["Ingress shop/api", "Ingress shop/web  host *.test is less specific"],
        id="a host comes before a wildcard, and its case and port do not count",
    ),
    pytest.param(
        [*WEB, ingress_class("other", "example.com/other"), ingress("web", "a.test / web:80", ingress_class_name="other")],
        "a.test/",
        ["host         no Ingress has it", "Ingress shop/web  its class 'other' belongs to the controller 'example.com/other'"],
        id="an Ingress of another class is named",
    ),
    pytest.param(
        [ingress("web", "a.test / web:80")],
        "a.test/",
        ["answer       503", "service shop/web does not exist"],
        id="a missing service is named",
    ),
    pytest.param(
        [service("web"), slice_of("web", "10.0.0.1", ready=False), ingress("web", "a.test / web:80")],
        "a.test/",
        ["answer       503", "no endpoint of service shop/web is ready for port 80 (1 of 1 are not ready)"],
        id="endpoints that are not ready are counted",
    ),
    pytest.param(
        [service("web"), ingress("web", "a.test / web:80")],
        "a.test/",
        ["service shop/web selects no pods"],
        id="a service without pods is named",
    ),
    pytest.param(
        [*WEB, ingress("web", "a.test / web:81")],
        "a.test/",
        ["answer       503", "has no port 81"],
        id="a port that the service lacks is named",
    ),
    pytest.param(
        [*WEB, ingress("web", "* / web:80")],
        "a.test/",
        ["host         no Ingress has it", "Ingress shop/web"],
        id="rules without a host serve the other hosts",
    ),
    pytest.param(
        [*WEB, *API, ingress("web", "* / web:80"), ingress("api", "a.test /api api:80")],
        "a.test/",
        ["404: no path of the host matches", "Ingress shop/web  its rules have no host; a.test has rules"],
        id="rules without a host do not serve a host with rules",
    ),
    pytest.param(
        [*WEB, *API, ingress("web", "a.test / web:80"), ingress("new", "a.test / api:80", age=1, canary="true", canary_weight="25")],
        "a.test/",
        ["75% shop/web:80", "25% shop/api:80"],
        id="a canary gets its share",
    ),
    pytest.param(
        [*WEB, ingress("web", "a.test / web:80", tls=["cert a.test"]), tls_secret("cert", "a.test")],
        "a.test/",
        ["certificate  shop/cert", "http:// is redirected to https:// (308)", "https:// answers have Strict-Transport-Security: max-age="],
        id="a host with a certificate redirects to https",
    ),
    pytest.param(
        [*WEB, ingress("web", "a.test / web:80", auth_ulr="http://a.b/")],
        "a.test/",
        ["answer       503", "annotation nginx.ingress.kubernetes.io/auth-ulr: not known to this controller; did you mean auth-url?"],
        id="an annotation that is not followed is named",
    ),
    pytest.param(
        [*WEB, ingress("web", "a.test ~/x[0-9]+ web:80", use_regex="true")],
        "a.test/X12",
        ["(regular expression)", "Ingress shop/web  spec.rules[0].http.paths[0]"],
        id="a regular expression ignores the case",
    ),
]


@pytest.mark.parametrize(("objects", "request_line", "lines"), SERVED)
def test_an_explanation_has(objects: list[Resource], request_line: str, lines: list[str]) -> None:
    host, _, path = request_line.partition("/")
    text = text_of(ClusterTable(*objects), host, path)
    assert [line for line in lines if line not in text] == [], text


async def test_the_command_reads_the_objects_of_the_cluster_and_names_objects_that_it_may_not_read(
    tls_host: tuple[HandlerServer, Client],
) -> None:
    server, client = tls_host
    explanation, forbidden = await explain_from_cluster(client, BuilderOptions(), "a.test", "/")
    route = explanation.routes[0]
    assert (route.origin, route.backends[0].endpoints) == ("Ingress shop/web", ("10.0.0.1:8080",))
    assert (explanation.certificate, forbidden) == ("shop/cert", [])
    server.faults.refuse(Forbidden, matching=on("get", Secret))
    explanation, forbidden = await explain_from_cluster(client, BuilderOptions(), "a.test", "/")
    assert (explanation.certificate, forbidden) == ("", ["Secret shop/cert"])


SETTINGS = ("shop", "settings")
CONFIG_MAP = "ConfigMap shop/settings"
REDIRECT = "http:// is redirected to https:// (308)"
HSTS = "https:// answers have Strict-Transport-Security: max-age="
DENIED = "the controller refuses this ConfigMap: NGINX keeps its last good configuration, or does not start"
UNKNOWN = "key http-snippet: not known to this controller; remove it"
PROTECTION = "the protection is not supported for all hosts; use annotations of Ingresses, and remove the key"
MISSING = "--configmap: ConfigMap shop/settings does not exist; the default settings are used"
BY_CONFIG_MAP = [
    pytest.param({}, [REDIRECT, f"{HSTS}31536000; includeSubDomains"], [], id="a ConfigMap without keys leaves the default settings"),
    pytest.param({"ssl-redirect": "false"}, [f"{HSTS}31536000; includeSubDomains"], [], id="ssl-redirect decides about the redirect"),
    pytest.param({"hsts": "false"}, [REDIRECT], [], id="hsts decides about the header"),
    pytest.param(
        {"hsts-max-age": "60", "hsts-include-subdomains": "false"}, [REDIRECT, f"{HSTS}60"], [], id="the parts of the header come from keys"
    ),
    pytest.param(
        {"http-snippet": "x", "hsts-max-age": "60"},
        [REDIRECT, f"{HSTS}60; includeSubDomains"],
        [UNKNOWN],
        id="an unknown key is named, and the others are followed",
    ),
    pytest.param(
        {"hsts": "perhaps", "ssl-redirect": "false"},
        [f"{HSTS}31536000; includeSubDomains"],
        ['key hsts: the value is neither "true" nor "false"'],
        id="a wrong value is named, and the default is used",
    ),
    pytest.param(
        {"global-auth-url": "http://a.b/"},
        [REDIRECT, f"{HSTS}31536000; includeSubDomains"],
        [DENIED, f"key global-auth-url: {PROTECTION}"],
        id="a key with which the controller serves nothing is named with the reason",
    ),
    pytest.param(None, [REDIRECT, f"{HSTS}31536000; includeSubDomains"], [MISSING], id="a missing ConfigMap is named"),
]


@pytest.fixture
async def tls_host() -> AsyncIterator[tuple[HandlerServer, Client]]:
    """A server whose namespace shop has the host a.test with a certificate."""
    objects: list[Resource] = [service("web", clusterIP=None), slice_of("web", "10.0.0.1"), ingress_class("kubeloop")]
    objects += [ingress("web", "a.test / web:80", tls=["cert a.test"]), tls_secret("cert", "a.test")]
    async with HandlerServer() as server:
        client = server.client("shop")
        await client.create(Namespace(metadata=ObjectMeta(name="shop")))
        for found in objects:
            await client.create(found)
        yield server, client


@pytest.mark.parametrize(("data", "behaviour", "problems"), BY_CONFIG_MAP)
async def test_the_settings_of_the_config_map_apply(
    tls_host: tuple[HandlerServer, Client], data: dict[str, str] | None, behaviour: list[str], problems: list[str]
) -> None:
    _, client = tls_host
    if data is not None:
        await client.create(ConfigMap(metadata=ObjectMeta(name="settings", namespace="shop"), data=data))
    explanation, forbidden = await explain_from_cluster(client, BuilderOptions(), "a.test", "/", SETTINGS)
    assert (list(explanation.routes[0].behaviour), list(explanation.config_map_problems), forbidden) == (behaviour, problems, [])
    text = explanation.to_text().splitlines()
    assert [line for line in text if "ConfigMap  " in line] == [f"├─ ConfigMap    {problem}" for problem in problems]
    assert await check_cluster(client, BuilderOptions(), SETTINGS) == ({CONFIG_MAP: problems, "shop/web": []}, [])


async def test_a_config_map_that_the_user_may_not_read_is_named_once_and_the_default_settings_apply(
    tls_host: tuple[HandlerServer, Client],
) -> None:
    server, client = tls_host
    await client.create(ConfigMap(metadata=ObjectMeta(name="settings", namespace="shop"), data={"ssl-redirect": "false"}))
    server.faults.refuse(Forbidden, matching=on("get", ConfigMap))
    explanation, forbidden = await explain_from_cluster(client, BuilderOptions(), "a.test", "/", SETTINGS)
    assert (REDIRECT in explanation.routes[0].behaviour, explanation.config_map_problems, forbidden) == (True, (), [CONFIG_MAP])
    server.faults.refuse(Forbidden, matching=on("get", ConfigMap))
    assert await check_cluster(client, BuilderOptions(), SETTINGS) == ({"shop/web": []}, [CONFIG_MAP])


async def test_a_controller_without_a_config_map_has_the_default_settings(tls_host: tuple[HandlerServer, Client]) -> None:
    _, client = tls_host
    explanation, _ = await explain_from_cluster(client, BuilderOptions(), "a.test", "/")
    assert (REDIRECT in explanation.routes[0].behaviour, explanation.config_map_problems) == (True, ())
    assert await check_cluster(client, BuilderOptions()) == ({"shop/web": []}, [])


CHECKED = [ingress_class("kubeloop"), service("web", clusterIP=None), slice_of("web", "10.0.0.1")]
CHECKED += [ingress("good", "a.test / web:80"), ingress("wrong", "b.test / web:80", auth_ulr="http://a.b/")]


@pytest.mark.embedded
async def test_the_check_of_all_ingresses_names_each_problem_and_fails() -> None:
    async with LocalCluster(controllers=False) as cluster:
        client = cluster.client
        await client.create(Namespace(metadata=ObjectMeta(name="shop")))
        for found in CHECKED:
            await client.create(found)

        def run(*words: str) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-m", "examples.ingress_nginx", "--kubeconfig", str(cluster.kubeconfig), *words]
            return subprocess.run(command, capture_output=True, text=True, check=False)

        text, document = await asyncio.gather(asyncio.to_thread(run, "check"), asyncio.to_thread(run, "check", "--json"))
        await client.delete(Ingress, "wrong", namespace="shop")
        options = ("--configmap", "shop/settings")
        healthy, missing, explained = await asyncio.gather(
            asyncio.to_thread(run, "check"),
            asyncio.to_thread(run, *options, "check"),
            asyncio.to_thread(run, *options, "explain", "a.test"),
        )
    problem = "annotation nginx.ingress.kubernetes.io/auth-ulr: not known to this controller; did you mean auth-url?"
    assert text.stdout.splitlines() == [
        "Ingress shop/good: no problem",
        "Ingress shop/wrong:",
        f"  {problem}",
        "2 Ingresses of the class, 1 with problems",
    ]
    assert json.loads(document.stdout) == {"shop/good": [], "shop/wrong": [problem]}
    assert missing.stdout.splitlines() == [
        "ConfigMap shop/settings:",
        f"  {MISSING}",
        "Ingress shop/good: no problem",
        "1 Ingresses of the class, 0 with problems",
    ]
    assert f"├─ ConfigMap    {MISSING}" in explained.stdout.splitlines()
    assert [found.returncode for found in (text, document, healthy, missing, explained)] == [1, 1, 0, 1, 0]
