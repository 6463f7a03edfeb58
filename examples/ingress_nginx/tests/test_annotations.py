"""Annotations become typed values; a mistake is a problem that names the annotation, and a protection with a mistake denies requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from examples.ingress_nginx.annotations.parse import DEPRECATED, UNSUPPORTED, parse_annotations, supported_annotations
from examples.ingress_nginx.annotations.parsed import Annotations
from examples.ingress_nginx.annotations.settings import parse_settings
from examples.ingress_nginx.model.configuration import Balance, Settings
from examples.ingress_nginx.model.policy import Protocol, Redirect
from examples.ingress_nginx.tests.objects import ClusterTable
from kubeloop.api.core.v1 import Secret

PREFIX = "nginx.ingress.kubernetes.io"


def secret(name: str, **data: str) -> Secret:
    found = Secret.from_dict({"metadata": {"name": name, "namespace": "shop"}})
    found.data = {key.replace("_", "."): value.encode() for key, value in data.items()}
    return found


OBJECTS = ClusterTable(secret("users", auth="ada:$apr1$x$hash\n"), secret("ca", ca_crt="PEM"), secret("empty"))


def parsed(values: Mapping[str, str]) -> Annotations:
    return parse_annotations({f"{PREFIX}/{name}": value for name, value in values.items()}, "shop", "web", OBJECTS)


def field(annotations: Annotations, path: str) -> Any:
    found: Any = annotations
    for name in path.split("."):
        found = getattr(found, name)
    return found


BASIC = {"auth-type": "basic", "auth-secret": "users"}
COOKIE = {"affinity": "cookie"}
CORS = {"enable-cors": "true"}
CANARY = {"canary": "true"}
EXTERNAL = {"auth-url": "http://auth.example.com/check"}
CLIENT = {"auth-tls-secret": "ca"}


@pytest.mark.parametrize(
    ("values", "path", "expected"),
    [
        ({"ssl-redirect": "false"}, "ssl_redirect", False),
        ({"force-ssl-redirect": "true"}, "force_ssl_redirect", True),
        ({"rewrite-target": "/app/$2"}, "rewrite_target", "/app/$2"),
        ({"use-regex": "true"}, "use_regex", True),
        ({"proxy-body-size": "8m"}, "policy.body_size", 8 << 20),
        ({"proxy-body-size": "0"}, "policy.body_size", 0),
        ({"backend-protocol": "GRPC"}, "policy.protocol", Protocol.GRPC),
        ({"proxy-connect-timeout": "7"}, "policy.timeouts.connect", 7),
        ({"proxy-send-timeout": "8"}, "policy.timeouts.send", 8),
        ({"proxy-read-timeout": "3600s"}, "policy.timeouts.read", 3600),
        ({"whitelist-source-range": "10.0.0.1"}, "policy.allow", ("10.0.0.1/32",)),
        ({"allowlist-source-range": "10.0.0.0/8, ::1/128"}, "policy.allow", ("10.0.0.0/8", "::1/128")),
        ({"denylist-source-range": "192.0.2.0/24"}, "policy.deny", ("192.0.2.0/24",)),
        (CORS, "policy.cors.origins", ("*",)),
        ({**CORS, "cors-allow-origin": "https://*.example.com"}, "policy.cors.origins", ("https://*.example.com",)),
        ({**CORS, "cors-allow-methods": "GET, POST"}, "policy.cors.methods", ("GET", "POST")),
        ({**CORS, "cors-allow-headers": "X-A"}, "policy.cors.headers", ("X-A",)),
        ({**CORS, "cors-expose-headers": "X-B"}, "policy.cors.expose", ("X-B",)),
        ({**CORS, "cors-allow-credentials": "false"}, "policy.cors.credentials", False),
        ({**CORS, "cors-max-age": "60"}, "policy.cors.max_age", 60),
        (BASIC, "policy.basic_auth.users", "ada:$apr1$x$hash\n"),
        ({**BASIC, "auth-realm": "Shop"}, "policy.basic_auth.realm", "Shop"),
        (EXTERNAL, "policy.external_auth.url", "http://auth.example.com/check"),
        ({**EXTERNAL, "auth-method": "GET"}, "policy.external_auth.method", "GET"),
        ({**EXTERNAL, "auth-signin": "https://a.example.com/start?rd=$escaped_request_uri"}, "policy.external_auth.redirect_param", "rd"),
        ({**EXTERNAL, "auth-response-headers": "X-User"}, "policy.external_auth.response_headers", ("X-User",)),
        (COOKIE, "affinity.cookie", "INGRESSCOOKIE"),
        ({**COOKIE, "session-cookie-name": "route"}, "affinity.cookie", "route"),
        ({**COOKIE, "session-cookie-path": "/a"}, "affinity.path", "/a"),
        ({**COOKIE, "session-cookie-max-age": "9"}, "affinity.max_age", 9),
        ({**COOKIE, "session-cookie-expires": "8"}, "affinity.expires", 8),
        ({**COOKIE, "session-cookie-samesite": "Lax"}, "affinity.same_site", "Lax"),
        ({**COOKIE, "session-cookie-secure": "true"}, "affinity.secure", True),
        ({**COOKIE, "session-cookie-change-on-failure": "true"}, "affinity.change_on_failure", True),
        ({"permanent-redirect": "https://b.example.com/"}, "policy.redirect", Redirect(301, url="https://b.example.com/")),
        ({"permanent-redirect": "/b", "permanent-redirect-code": "308"}, "policy.redirect", Redirect(308, url="/b")),
        ({"temporal-redirect": "/b"}, "policy.redirect", Redirect(302, url="/b")),
        ({"app-root": "/app"}, "policy.app_root", "/app"),
        ({"from-to-www-redirect": "true"}, "from_to_www", True),
        ({**CANARY, "canary-weight": "30"}, "canary.weight", 30),
        ({**CANARY, "canary-weight": "300", "canary-weight-total": "1000"}, "canary.weight", 300),
        ({**CANARY, "canary-by-header": "X-C"}, "canary.header", "X-C"),
        ({**CANARY, "canary-by-header": "X-C", "canary-by-header-value": "yes"}, "canary.header_value", "yes"),
        ({**CANARY, "canary-by-header": "X-C", "canary-by-header-pattern": "a|b"}, "canary.header_pattern", "a|b"),
        ({**CANARY, "canary-by-cookie": "c"}, "canary.cookie", "c"),
        ({"limit-rps": "5"}, "policy.limits.per_second", 5),
        ({"limit-rpm": "50"}, "policy.limits.per_minute", 50),
        ({"limit-connections": "3"}, "policy.limits.connections", 3),
        ({"limit-rps": "5", "limit-burst-multiplier": "2"}, "policy.limits.burst_multiplier", 2),
        ({"limit-rps": "5", "limit-allowlist": "10.0.0.0/8"}, "policy.limits.allow", ("10.0.0.0/8",)),
        ({"limit-rps": "5"}, "policy.limits.zone", "shop/web"),
        ({"upstream-vhost": "inner.example.com"}, "policy.upstream_vhost", "inner.example.com"),
        ({"server-alias": "a.example.com, b.example.com"}, "server_aliases", ("a.example.com", "b.example.com")),
        ({"x-forwarded-prefix": "/app"}, "policy.forwarded_prefix", "/app"),
        ({"connection-proxy-header": "keep-alive"}, "policy.connection_header", "keep-alive"),
        ({"proxy-buffering": "on"}, "policy.buffering.response", True),
        ({"proxy-request-buffering": "off"}, "policy.buffering.request", False),
        ({"proxy-buffer-size": "8k"}, "policy.buffering.size", 8 << 10),
        ({"proxy-buffers-number": "8"}, "policy.buffering.count", 8),
        ({"proxy-max-temp-file-size": "1m"}, "policy.buffering.max_temp_file", 1 << 20),
        ({"client-body-buffer-size": "64k"}, "policy.buffering.client_body", 64 << 10),
        ({"proxy-next-upstream": "error http_502"}, "policy.retries.on", ("error", "http_502")),
        ({"proxy-next-upstream-tries": "2"}, "policy.retries.tries", 2),
        ({"proxy-next-upstream-timeout": "9"}, "policy.retries.timeout", 9),
        ({"custom-http-errors": "404,503"}, "policy.intercept", (404, 503)),
        ({"default-backend": "errors"}, "default_backend", "errors"),
        ({"upstream-hash-by": "$host-$arg_user"}, "hash_by", ("host", "=-", "arg_user")),
        ({"load-balance": "ewma"}, "balance", Balance.LEAST_CONNECTIONS),
        ({"service-upstream": "true"}, "service_upstream", True),
        (CLIENT, "client_auth.authority", "shop/ca"),
        ({**CLIENT, "auth-tls-verify-client": "optional"}, "client_auth.verify", "optional"),
        ({**CLIENT, "auth-tls-verify-depth": "2"}, "client_auth.depth", 2),
        ({**CLIENT, "auth-tls-error-page": "/error"}, "client_auth.error_page", "/error"),
        ({**CLIENT, "auth-tls-pass-certificate-to-upstream": "true"}, "client_auth.pass_certificate", True),
        ({"proxy-ssl-secret": "ca", "proxy-ssl-verify": "on"}, "policy.backend_tls.verify", True),
        ({"proxy-ssl-name": "inner.example.com"}, "policy.backend_tls.server_name", "inner.example.com"),
        ({"proxy-ssl-server-name": "on"}, "policy.backend_tls.send_server_name", True),
        ({"proxy-ssl-verify-depth": "3"}, "policy.backend_tls.depth", 3),
    ],
    ids=lambda value: " ".join(f"{name}={text}" for name, text in value.items()) if isinstance(value, dict) else "",
)
def test_an_annotation_sets_a_field(values: dict[str, str], path: str, expected: object) -> None:
    annotations = parsed(values)
    assert field(annotations, path) == expected
    assert not annotations.problems


@pytest.mark.parametrize(
    ("values", "message", "denies"),
    [
        pytest.param({"proxy-body-size": "8q"}, "is not a size", False, id="a size with an unknown unit"),
        pytest.param({"ssl-redirect": "yes"}, 'is neither "true" nor "false"', False, id="a word that is no boolean"),
        pytest.param({"proxy-read-timeout": "-1"}, "is not a time", False, id="a negative time"),
        pytest.param({"whitelist-source-range": "10.0.0.0/33"}, "is not a list of networks", True, id="a network that does not exist"),
        pytest.param({"limit-rps": "many"}, "is not an integer", True, id="a limit that is no number"),
        pytest.param({"auth-type": "digest"}, "is not one of the values basic", True, id="another kind of authentication"),
        pytest.param({"auth-type": "basic"}, "it needs auth-secret", True, id="authentication without users"),
        pytest.param({**BASIC, "auth-secret": "other/users"}, "another namespace", True, id="a Secret of another namespace"),
        pytest.param({**BASIC, "auth-secret": "gone"}, "does not exist", True, id="a Secret that does not exist"),
        pytest.param({**BASIC, "auth-secret": "empty"}, "has no key auth", True, id="a Secret without users"),
        pytest.param({"auth-tls-secret": "empty"}, "has no ca.crt", True, id="a Secret without authorities"),
        pytest.param({"configuration-snippet": "return 200;"}, "not supported", True, id="a snippet"),
        pytest.param({"server-snippet": "return 200;"}, "not supported", True, id="a snippet of a server"),
        pytest.param({"enable-modsecurity": "true"}, "not supported", True, id="a firewall"),
        pytest.param({"enable-modsecurity": "false"}, "not supported", False, id="no firewall"),
        pytest.param({"stream-snippet": "x"}, "not supported", True, id="a snippet of a stream"),
        pytest.param({"auth-ulr": "http://a.b/"}, "did you mean auth-url?", True, id="a protection with a mistake in its name"),
        pytest.param({"allowlist-source-rang": "10.0.0.0/8"}, "did you mean allowlist-source-range?", True, id="networks with a mistake"),
        pytest.param({"limit-rate": "5"}, "not supported: the speed", False, id="a limit that protects nothing"),
        pytest.param({"auth-cache-key": "x"}, "not supported: each request asks", False, id="a cache of a protection"),
        pytest.param({"satisfy": "any"}, "not supported: each of", False, id="an annotation that weakens a protection"),
        pytest.param({"mirror-target": "http://x"}, "not supported", False, id="a mirror"),
        pytest.param({"ssl-passthrough": "true"}, "not supported", False, id="TLS that does not end here"),
        pytest.param({"proxy-bodysize": "8m"}, "not known to this controller", False, id="a name with a mistake"),
        pytest.param({"cors-max-age": "60"}, "it has no effect without enable-cors", False, id="a detail without its switch"),
        pytest.param({"upstream-hash-by": "$binary_remote_addr"}, "has a variable that is none of", False, id="an unknown variable"),
        pytest.param({"rewrite-target": "/a\nb"}, "has a line break", False, id="a line break"),
    ],
)
def test_a_mistake_is_a_problem(values: dict[str, str], message: str, denies: bool) -> None:
    annotations = parsed(values)
    assert any(message in problem.message for problem in annotations.problems)
    assert all(problem.annotation.startswith(PREFIX) for problem in annotations.problems)
    assert annotations.denied == denies


def test_annotations_of_other_programs_are_not_read() -> None:
    assert parse_annotations({"example.com/proxy-body-size": "8q"}, "shop", "web", OBJECTS) == Annotations()


def test_a_deprecated_annotation_is_followed_with_a_warning() -> None:
    annotations = parsed({"whitelist-source-range": "10.0.0.0/8"})
    assert annotations.warnings == (f"annotation {PREFIX}/whitelist-source-range is deprecated; use {PREFIX}/allowlist-source-range",)
    assert set(DEPRECATED.values()) <= supported_annotations()


def test_no_annotation_is_both_supported_and_unsupported() -> None:
    assert not [name for name in supported_annotations() if name.startswith(tuple(UNSUPPORTED))]


@pytest.mark.parametrize(
    ("data", "name", "expected"),
    [
        ({"worker-processes": "4"}, "worker_processes", 4),
        ({"worker-processes": "auto"}, "worker_processes", 0),
        ({"keep-alive": "10"}, "keepalive", 10),
        ({"server-tokens": "true"}, "server_tokens", True),
        ({"disable-access-log": "true"}, "access_log", False),
        ({"upstream-keepalive-connections": "7"}, "upstream_keepalive", 7),
        ({"ssl-protocols": "TLSv1.3"}, "ssl_protocols", ("TLSv1.3",)),
        ({"use-http2": "false"}, "http2", False),
        ({"worker-shutdown-timeout": "60s"}, "shutdown_seconds", 60),
        ({"use-forwarded-headers": "true"}, "use_forwarded_headers", True),
        ({"ssl-redirect": "false"}, "ssl_redirect", False),
        ({"hsts": "false"}, "strict_transport_security", ""),
        ({"hsts-max-age": "60"}, "strict_transport_security", "max-age=60; includeSubDomains"),
        ({"hsts-include-subdomains": "false"}, "strict_transport_security", "max-age=31536000"),
        ({"hsts-preload": "true"}, "strict_transport_security", "max-age=31536000; includeSubDomains; preload"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_key_of_the_config_map_sets_a_setting(data: dict[str, str], name: str, expected: object) -> None:
    settings, problems = parse_settings(data)
    assert (getattr(settings, name), problems) == (expected, ())


@pytest.mark.parametrize(
    ("data", "denies"),
    [
        pytest.param({"whitelist-source-range": "10.0.0.0/8"}, True, id="networks for all hosts"),
        pytest.param({"global-auth-url": "http://a.b/"}, True, id="authentication for all hosts"),
        pytest.param({"enable-modsecurity": "false"}, False, id="no firewall"),
        pytest.param({"use-gzip": "true"}, False, id="a key that protects nothing"),
    ],
)
def test_a_key_that_asks_for_a_protection_of_all_hosts_denies(data: dict[str, str], denies: bool) -> None:
    (problem,) = parse_settings(data)[1]
    assert problem.denies == denies


def test_keys_with_a_mistake_are_problems_and_keep_their_defaults() -> None:
    settings, problems = parse_settings({"keep-alive": "x", "http-snippet": "lua_code"})
    assert settings == Settings()
    assert [problem.annotation for problem in problems] == ["http-snippet", "keep-alive"]
