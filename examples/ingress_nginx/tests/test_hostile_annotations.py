"""No text of an annotation reaches NGINX's syntax: hostile values are problems, or become values without any of its characters."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from enum import Enum

import pytest

from examples.ingress_nginx.annotations.parse import supported_annotations
from examples.ingress_nginx.annotations.parsed import Annotations
from examples.ingress_nginx.tests.test_annotations import BASIC, CANARY, CLIENT, COOKIE, CORS, EXTERNAL, parsed

#: What an attacker writes to end a string, a directive or a block of NGINX, to begin a comment, a line or a variable, or to run Lua.
HOSTILE = {
    "a quote": '"',
    "a single quote": "'",
    "a backslash": "\\",
    "the end of a directive": "x; return 200",
    "a block": "x { return 200; }",
    "the end of a block": "x}",
    "a comment": "x#y",
    "a new line": "x\nreturn 200",
    "a carriage return": "x\rreturn 200",
    "a tab": "x\ty",
    "a null byte": "x\x00y",
    "a variable": "$http_host",
    "a variable in braces": "${http_host}",
    "a line separator of Unicode": "x\u2028y",
    "a quote after an escape": '\\"; return 200; #',
    "Lua": "x; content_by_lua_block { os.execute('id') }",
    "a module (CVE-2025-1974)": "x; ssl_engine /proc/1/fd/3;",
    "a URL with a directive (CVE-2025-24514)": "http://example.com/#;}\nload_module /tmp/x.so;",
    "a name of a certificate (CVE-2025-1097)": "CN=abc #(\n){}\n}}\nssl_engine x;",
    "a host that ends its map (CVE-2025-1098)": "example.com ~.* 1; } map x",
    "an alias of a token (CVE-2021-25742)": "/etc/nginx/{alias /var/run/secrets/kubernetes.io/serviceaccount/;}",
    "a path with a directive (CVE-2021-25745)": "/x/ { alias /etc/; } location ~* ^/y",
    "10,000 characters": "a" * 10_000,
}
_SYNTAX = frozenset("\"'\\;{}\n\r\t\x00\u2028")
#: URLs for browsers may have a fragment: inside the quotes that the renderers write, ``#`` begins no comment.
_PAGES = frozenset({"request_redirect", "error_page", "url", "app_root", "signin"})
#: Values that may hold ``$``: groups, and names that renderers replace.
_TEMPLATES = frozenset({"rewrite_target"})
#: Annotations that count only beside others.
_COMPANIONS = {**BASIC, **COOKIE, **CORS, **CANARY, **EXTERNAL, **CLIENT}


def texts(value: object, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield the name of the field and the text of all texts in a value."""
    if isinstance(value, Enum):
        return
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, tuple):
        for item in value:
            yield from texts(item, name)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            if field.name not in ("problems", "warnings", "users"):
                yield from texts(getattr(value, field.name), field.name)


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE.keys())
def test_no_annotation_lets_syntax_through(hostile: str) -> None:
    for name in supported_annotations():
        for value in (hostile, f"/{hostile}", f"http://example.com/{hostile}", f"a{hostile}"):
            annotations = parsed({**_COMPANIONS, name: value})
            for field, text in texts(annotations):
                assert not _SYNTAX & set(text), (name, value, field, text)
                assert "$" not in text or field in _TEMPLATES or text.startswith("http://"), (name, value, field, text)
                assert "#" not in text or field in _PAGES, (name, value, field, text)
                assert len(text) < 5000, (name, field)


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_value_is_a_problem_that_does_not_repeat_it(hostile: str) -> None:
    annotations = parsed({"rewrite-target": hostile, "auth-url": hostile, "server-alias": hostile, "auth-realm": hostile})
    names = {problem.annotation.rpartition("/")[2] for problem in annotations.problems}
    if len(hostile) < 10_000:
        assert names >= {"rewrite-target", "auth-url", "server-alias"}
    assert annotations.denied
    assert not [problem for problem in annotations.problems if len(hostile) > 3 and hostile in problem.message]


@pytest.mark.parametrize(
    "name",
    ["configuration-snippet", "server-snippet", "auth-snippet", "modsecurity-snippet", "auth-tls-match-cn"],
)
def test_an_annotation_that_is_configuration_is_refused_and_denies_requests(name: str) -> None:
    annotations: Annotations = parsed({name: "anything"})
    assert annotations.denied
