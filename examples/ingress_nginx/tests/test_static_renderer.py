"""The text of nginx.conf without a running NGINX."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from examples.ingress_nginx.model.configuration import (
    CATCH_ALL,
    Affinity,
    Backend,
    Configuration,
    Endpoint,
    Listener,
    Server,
    Settings,
    changes_between,
)
from examples.ingress_nginx.model.policy import BackendTls, Policy, Protocol
from examples.ingress_nginx.nginx.binary import NginxBinary
from examples.ingress_nginx.nginx.conf_file import seconds
from examples.ingress_nginx.nginx.default_certificate import self_signed_certificate
from examples.ingress_nginx.nginx.static import RenderedConfiguration, StaticRenderer
from examples.ingress_nginx.tests.nginx_stage import exact, prefix, server

OLD, NEW = (NginxBinary(Path("nginx"), version) for version in ((1, 22, 1), (1, 31, 3)))
FALLBACK = self_signed_certificate()


def render(*servers: Server, binary: NginxBinary = OLD, settings: Settings | None = None, backends: tuple[Backend, ...] = ()) -> str:
    configuration = Configuration(
        {found.key: found for found in servers}, {backend.name: backend for backend in backends}, settings=settings or Settings()
    )
    return StaticRenderer(binary, FALLBACK).render(configuration).text


def section(text: str, name: str) -> list[str]:
    """Return the lines of a server by its name."""
    lines = text.splitlines()
    start = lines.index(f"server_name {name};")
    return lines[start : lines.index("}", start)]


def test_http2_is_a_parameter_or_a_directive() -> None:
    old, new = render(binary=OLD), render(binary=NEW)
    assert "listen *:443 default_server ssl http2;" in old
    assert "http2 on;" not in old
    assert "listen *:443 default_server ssl;" in new
    assert "http2 on;" in new
    assert "http2" not in render(binary=OLD, settings=Settings(http2=False))


@pytest.mark.parametrize(
    ("binary", "flags"),
    [
        pytest.param(OLD, " http2", id="before 1.25.1 the port serves HTTP/2 only"),
        pytest.param(NEW, "", id="since 1.25.1 each port serves HTTP/1.1 and HTTP/2"),
    ],
)
def test_a_port_of_grpc_without_tls(binary: NginxBinary, flags: str) -> None:
    calls = replace(server("a.test", prefix("/", "web")), listeners=(Listener("127.0.0.1", 81, http2_only=True),))
    assert f'listen "127.0.0.1:81"{flags};' in render(calls, binary=binary)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param(10.0, "10s", id="whole seconds"),
        pytest.param(0.5, "500ms", id="parts of a second"),
        pytest.param(0.0001, "1ms", id="at least a millisecond"),
        pytest.param(31536000.0, "31536000s", id="a year, without an exponent"),
    ],
)
def test_times(value: float, text: str) -> None:
    assert seconds(value) == text


def test_only_servers_with_a_certificate_and_the_default_server_have_one() -> None:
    text = render(server("plain.test", prefix("/", "web")))
    assert "ssl_certificate" not in "".join(section(text, '"plain.test"'))
    assert "ssl_certificate" in "".join(section(text, CATCH_ALL))


def test_each_listener_has_one_default_server() -> None:
    listeners = (Listener("127.0.0.1", 8081), Listener("::1", 8443, tls=True))
    text = render(server("a.test", listeners=listeners), server("b.test", listeners=listeners[:1]))
    assert text.count('listen "127.0.0.1:8081" default_server;') == 1
    assert text.count('listen "127.0.0.1:8081";') == 2
    assert text.count('listen "[::1]:8443" default_server ssl http2;') == 1


def test_a_location_of_a_default_policy_is_one_directive() -> None:
    text = render(server("a.test", prefix("/foo", "web")), backends=(Backend("web", (Endpoint("10.0.0.1", 80),)),))
    assert [line for line in section(text, '"a.test"') if line.startswith("location")] == [
        'location "/foo/" { proxy_pass http://backend-web; }',
        'location = "/foo" { proxy_pass http://backend-web; }',
        'location / { return 404 "not found\\n"; }',
    ]


def test_a_backend_with_a_name_is_resolved_for_each_request() -> None:
    text = render(server("a.test", prefix("/", "web")), backends=(Backend("web", (Endpoint("db.example.com", 5432),)),))
    assert 'set $kubeloop_target "db.example.com:5432"; proxy_pass http://$kubeloop_target;' in text
    assert "upstream" not in [line.split(" ")[0] for line in text.splitlines()]


@pytest.mark.parametrize(
    ("policy", "line"),
    [
        pytest.param(Policy(protocol=Protocol.GRPC), "grpc_pass grpc://backend-web;", id="gRPC"),
        pytest.param(Policy(protocol=Protocol.GRPCS), "grpc_pass grpcs://backend-web;", id="gRPC with TLS"),
        pytest.param(Policy(protocol=Protocol.HTTPS), "proxy_pass https://backend-web;", id="HTTPS"),
        pytest.param(
            Policy(protocol=Protocol.HTTPS, backend_tls=BackendTls(verify=True)),
            "location / { return 503; }",
            id="a backend that cannot be verified gets no request",
        ),
        pytest.param(
            Policy(protocol=Protocol.HTTPS, backend_tls=BackendTls(client_certificate="missing")),
            "location / { return 503; }",
            id="a backend whose client certificate is missing gets no request",
        ),
    ],
)
def test_protocols(policy: Policy, line: str) -> None:
    backends = (Backend("web", (Endpoint("10.0.0.1", 80),)),)
    assert line in render(server("a.test", prefix("/", "web", policy)), backends=backends)


def test_a_backend_without_endpoints_does_not_open_a_protected_location() -> None:
    assert "location / { deny 10.0.0.0/8; return 503; }" in render(server("a.test", prefix("/", "web", Policy(deny=("10.0.0.0/8",)))))


def test_a_changed_endpoint_renders_no_server_and_a_first_endpoint_does() -> None:
    before = Configuration({((), "a.test"): server("a.test", prefix("/", "web"))}, {"web": Backend("web", (Endpoint("10.0.0.1", 80),))})
    renderer = StaticRenderer(OLD, FALLBACK)
    first = renderer.render(before)
    moved = replace(before, backends={"web": Backend("web", (Endpoint("10.0.0.2", 80),))})
    second = renderer.render(moved, changes_between(before, moved))
    assert second.sections[0][1] is first.sections[0][1]
    assert "server 10.0.0.2:80" in second.text
    empty = replace(before, backends={})
    third = renderer.render(empty, changes_between(moved, empty))
    assert "location / { return 503; }" in third.text


def test_a_lost_line_has_its_owner() -> None:
    renderer = StaticRenderer(OLD, FALLBACK)
    servers = [server(f"{name}.test", exact(f"/{name}", "web")) for name in "ab"]
    found = renderer.render(Configuration({each.key: each for each in servers}))
    line = next(number for number, text in enumerate(found.text.splitlines(), 1) if '"/b"' in text)
    assert found.owners_of_line(line) == {((), "b.test")}
    assert found.owners_of_line(1) == found.owners_of_line(10**6) == set()


def histories(seed: int) -> Iterator[Configuration]:
    """Yield configurations, each a random change of the one before."""
    source = random.Random(seed)
    configuration = Configuration()
    for _ in range(30):
        servers, backends = dict(configuration.servers), dict(configuration.backends)
        certificates, settings = dict(configuration.certificates), configuration.settings
        name = source.choice("abc")
        match source.randrange(6):
            case 0:
                servers.pop(((), f"{name}.test"), None)
            case 1 | 2:
                policy = source.choice(
                    (Policy(), Policy(hsts="x"), Policy(error_backend=source.choice("abc"), intercept=(404,)), Policy(status=503))
                )
                paths = (prefix(f"/{path}", source.choice("abc"), policy) for path in source.sample("xyz", source.randrange(1, 4)))
                servers[(), f"{name}.test"] = server(f"{name}.test", *paths, certificate=source.choice(("", "one")))
            case 3:
                affinity = source.choice((None, Affinity()))
                endpoints = tuple(Endpoint(f"10.0.0.{number}", 80) for number in range(source.randrange(3)))
                backends[name] = Backend(name, endpoints, affinity=affinity)
            case 4:
                certificates = source.choice(
                    ({}, {"one": replace(FALLBACK, name="one", chain=FALLBACK.chain + "\n" * source.randrange(3))})
                )
            case _:
                settings = source.choice((Settings(), Settings(http2=False)))
        configuration = Configuration(servers, backends, certificates, settings)
        yield configuration


@pytest.mark.parametrize("seed", range(5))
def test_the_text_after_changes_equals_that_of_a_new_renderer(seed: int) -> None:
    renderer, before = StaticRenderer(OLD, FALLBACK), Configuration()
    renderer.render(before)
    for configuration in histories(seed):
        found = renderer.render(configuration, changes_between(before, configuration))
        assert normal(found) == normal(StaticRenderer(OLD, FALLBACK).render(configuration))
        before = configuration


def normal(rendered: RenderedConfiguration) -> tuple[list[str], dict[str, bytes]]:
    """Return the text without the order of upstreams, which has no meaning."""
    return sorted(rendered.text.splitlines()), rendered.files
