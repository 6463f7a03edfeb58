"""Text from outside never becomes a directive."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from examples.ingress_nginx.model.configuration import (
    Affinity,
    Backend,
    Condition,
    Configuration,
    Endpoint,
    Location,
    PathMatch,
    Rewrite,
    Route,
    Server,
    Source,
    Target,
)
from examples.ingress_nginx.model.policy import BasicAuth, Cors, ExternalAuth, HeaderChanges, Limits, Policy, Redirect, Retries
from examples.ingress_nginx.nginx.binary import NginxBinary, find_nginx, run
from examples.ingress_nginx.nginx.default_certificate import self_signed_certificate
from examples.ingress_nginx.nginx.quoting import UnsafeText, header_name, network, pcre_literal, quote
from examples.ingress_nginx.nginx.static import StaticRenderer
from examples.ingress_nginx.nginx.static_server import StaticNginx
from examples.ingress_nginx.tests.nginx_stage import BUILDS, EchoBackend, echo_backends, prefix, server, stage

#: Texts that NGINX cannot read.
REFUSED = ("a\nb; return 200;", "a\r\nX-Evil: 1", "a\0b", "a\x7fb", "\ud800", "x" * 10_000, '"' * 3_000)
HOSTILE = [
    pytest.param('a"b', id="a double quote"),
    pytest.param("a'b", id="a single quote"),
    pytest.param("a\\", id="a backslash at the end"),
    pytest.param('a\\" }', id="a backslash before a quote"),
    pytest.param("a\nb; return 200;", id="a line break"),
    pytest.param("a\r\nX-Evil: 1", id="a carriage return"),
    pytest.param("a;b", id="a semicolon"),
    pytest.param('"; } server { listen 1; } #', id="the end of a block"),
    pytest.param("a } b {", id="braces"),
    pytest.param("$host ${host} $1 $", id="variables"),
    pytest.param("# a", id="a comment"),
    pytest.param("a\0b", id="a NUL"),
    pytest.param("a\x7fb", id="a DEL"),
    pytest.param("\ud800", id="half of a surrogate pair"),
    pytest.param("ä€𝄞", id="letters outside ASCII"),
    pytest.param("default", id="a word with a meaning in a map"),
    pytest.param("~.*", id="an expression in a map"),
    pytest.param("off", id="a word with a meaning in auth_basic"),
    pytest.param("", id="nothing"),
    pytest.param(" a ", id="spaces"),
    pytest.param("x" * 10_000, id="10,000 characters"),
    pytest.param('"' * 3_000, id="3,000 quotes"),
    pytest.param("/etc/passwd", id="a file"),
    pytest.param("unix:/run/docker.sock:", id="a socket"),
    pytest.param("http://evil.test/", id="a URL"),
]


@pytest.mark.parametrize("text", HOSTILE)
def test_quote_returns_one_parameter_that_means_the_text(text: str) -> None:
    if text in REFUSED:
        with pytest.raises(UnsafeText) as raised:
            quote(text)
        assert len(str(raised.value)) < 200
        return
    assert list(tokens(f"name {quote(text)};")) == ["name", text.replace("$", "${kubeloop_dollar}"), ";"]
    assert list(tokens(f"name {quote(text, variables=False)};")) == ["name", text, ";"]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_literal_expression_matches_its_text_only(text: str) -> None:
    assert re.fullmatch(pcre_literal(text), text)
    assert not re.fullmatch(pcre_literal(text), text + "x")


@pytest.mark.parametrize("text", ["a b", "a:", "", "ä", "a\n", "a$b"])
def test_names_of_headers_and_networks_that_are_refused(text: str) -> None:
    with pytest.raises(UnsafeText):
        header_name(text)
    with pytest.raises(UnsafeText):
        network(text)


def hostile_server(text: str) -> Server:
    """Return a server that has the text wherever a cluster's user may write one."""
    changes = HeaderChanges(set=(("X-Set", text), (text, "x")), add=(("X-Add", text),), remove=(text,))
    policies = (
        Policy(request_headers=changes),
        Policy(request_headers=HeaderChanges(set=(("X-Set", text),), add=(("X-Add", text),))),
        Policy(response_headers=HeaderChanges(set=(("X-Set", text),), add=(("X-Add", text),))),
        Policy(response_headers=changes),
        Policy(redirect=Redirect(url=text)),
        Policy(redirect=Redirect(scheme=text, host=text, path=text)),
        Policy(redirect=Redirect(path=text, replace_prefix=True)),
        Policy(basic_auth=BasicAuth(text, "")),
        Policy(external_auth=ExternalAuth(text)),
        Policy(external_auth=ExternalAuth("http://a/" + text, method=text)),
        Policy(external_auth=ExternalAuth("http://a/" + text, signin=text, redirect_param=text, request_redirect=text)),
        Policy(external_auth=ExternalAuth("http://a/", response_headers=(text,))),
        Policy(cors=Cors(origins=(text,))),
        Policy(cors=Cors(origins=("*",), headers=(text,), expose=(text,))),
        Policy(cors=Cors(methods=(text,))),
        Policy(limits=Limits(per_second=1, zone=text)),
        Policy(limits=Limits(per_second=1, allow=(text,))),
        Policy(upstream_vhost=text, forwarded_prefix=text, connection_header=text),
        Policy(app_root=text),
        Policy(hsts=text),
        Policy(allow=(text,)),
        Policy(deny=(text,)),
        Policy(retries=Retries(on=(text,))),
    )
    locations = [Location(f"/policy/{index}", PathMatch.EXACT, (Route((Target("web"),), policy),)) for index, policy in enumerate(policies)]
    for index, source in enumerate(Source):
        for name, value in ((text, "x"), ("x", text)):
            route = Route((Target("web"),), conditions=(Condition(source, name, value),))
            locations.append(Location(f"/condition/{index}/{name == text}", PathMatch.EXACT, (route,)))
    route = Route((Target("web"),), rewrite=Rewrite(text, prefix=True))
    locations.append(Location("/rewrite", PathMatch.PREFIX, (route,)))
    locations += [Location("/" + text, PathMatch.EXACT, (route,)), Location("/p/" + text, PathMatch.PREFIX, (route,))]
    locations += [Location(f"/{name}", PathMatch.EXACT, (Route((Target(name),)),)) for name in ("sticky", "hash", "named")]
    return Server("hostile.test", tuple(locations))


def hostile_configuration(text: str) -> Configuration:
    endpoints = (Endpoint("127.0.0.1", 1),)
    backends = (
        Backend("web", endpoints),
        Backend("sticky", endpoints, affinity=Affinity(text, path=text, domain=text, same_site=text)),
        Backend("hash", endpoints, hash_by=(text, "=" + text)),
        Backend("named", (Endpoint(text, 80),)),
        Backend(text, endpoints),
    )
    servers = (
        hostile_server(text),
        Server(text, (prefix("/", text),)),
        Server("alias.test", (prefix("/", "web"),), aliases=(text,)),
        Server("from.test", (prefix("/", "web"),), redirect_from=(text,)),
        Server("good.test", (prefix("/", "web"),)),
    )
    return Configuration({server.key: server for server in servers}, {backend.name: backend for backend in backends})


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("text", HOSTILE)
async def test_nginx_accepts_a_configuration_full_of_a_hostile_text(build: str, text: str, tmp_path: Path) -> None:
    binary = await find_nginx(build, lua=False)
    rendered = StaticRenderer(binary, self_signed_certificate()).render(hostile_configuration(text))
    found = list(tokens(rendered.text))
    blocks = [found[index - 1] for index, token in enumerate(found) if token == "{"]
    # One server for each of the model's, for NGINX's status, for other hosts; at most one for the redirect.
    assert 4 <= blocks.count("server") <= 8
    assert {"listen 1", "evil"}.isdisjoint(found)
    for name, content in rendered.files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    (tmp_path / "temp").mkdir()
    (tmp_path / "nginx.conf").write_text(rendered.text)
    arguments = ("-t", "-q", "-p", f"{tmp_path}/", "-c", str(tmp_path / "nginx.conf"), "-e", "stderr")
    status, output = await run(binary.path, *arguments, folder=tmp_path)
    # A machine may not let the tests listen on port 80; the text is accepted then.
    assert status == 0 or "bind() to" in output, output


@pytest.mark.parametrize("build", BUILDS)
async def test_a_backend_gets_exactly_the_text_of_a_header(build: str, tmp_path: Path) -> None:
    texts = [str(parameter.values[0]) for parameter in HOSTILE]
    locations = [
        prefix(f"/{index}", "web", Policy(request_headers=HeaderChanges(set=(("X-Value", text),)))) for index, text in enumerate(texts)
    ]
    nginx = StaticNginx(await find_nginx(build, lua=False), tmp_path / "nginx", resolvers=())
    async with echo_backends(EchoBackend("web")) as backends, stage(nginx) as running:
        await running.start(server("shop.test", *locations), backends=backends)
        for index, text in enumerate(texts):
            answer = await running.get("shop.test", f"/{index}")
            if text in REFUSED:
                assert answer.status == 503
            else:
                assert answer.seen["headers"].get("x-value", "").encode("latin-1").decode() == text.strip()


def test_a_private_key_is_in_no_text() -> None:
    certificate = replace(self_signed_certificate(), name="shop/tls")
    configuration = Configuration(certificates={"shop/tls": certificate})
    secure = Server("shop.test", (prefix("/", "web"),), certificate="shop/tls")
    configuration.servers[secure.key] = secure
    rendered = StaticRenderer(NginxBinary(Path("nginx"), (1, 22, 1)), self_signed_certificate()).render(configuration)
    assert "PRIVATE" not in rendered.text
    assert certificate.key.encode() in rendered.files.values()
    assert "PRIVATE" not in repr(certificate)


def tokens(text: str) -> Iterator[str]:
    """Yield the parameters, semicolons and braces of nginx.conf, as NGINX reads them (ngx_conf_file.c)."""
    position = 0
    while position < len(text):
        letter = text[position]
        if letter.isspace():
            position += 1
        elif letter == "#":
            position = text.find("\n", position) if "\n" in text[position:] else len(text)
        elif letter in ";{}":
            yield letter
            position += 1
        elif letter in "\"'":
            match = re.compile(rf"{letter}((?:\\.|[^{letter}\\])*){letter}", re.DOTALL).match(text, position)
            assert match is not None, text[position : position + 100]
            yield re.sub(r"\\([\"'\\])", r"\1", match.group(1))
            position = match.end()
        else:
            match = re.compile(r"(?:\$\{|[^\s;{])+").match(text, position)
            assert match is not None
            yield match.group()
            position = match.end()
