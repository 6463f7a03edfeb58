"""Malformed requests, and many that are nearly right: strategies for hypothesis."""

from __future__ import annotations

import copy
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml
from hypothesis import strategies as st

JSON = Any

_HERE = Path(__file__).parent
#: Collections, and an object of each that would be accepted.
KINDS: dict[str, JSON] = yaml.load((_HERE / "objects.yaml").read_text(), yaml.CSafeLoader)
#: A definition that is there from the start, so that custom objects are sent too.
BOOKS: JSON = yaml.load((_HERE / "books.yaml").read_text(), yaml.CSafeLoader)

_NAMES = ("a", "b", "c")
_ODD_NAMES = ("toys.fuzz.example.com", "A_B", "..", "%2e%2e", "a%2fb", "x" * 300, "\u00e4", "")
_SUBRESOURCES = (
    "status",
    "scale",
    "log",
    "exec",
    "eviction",
    "binding",
    "token",
    "proxy",
    "proxy/x",
    "finalize",
    "ephemeralcontainers",
    "resize",
    "approval",
    "x",
)
_ON_COLLECTIONS = ("GET", "POST", "POST", "POST", "DELETE")
_ON_OBJECTS = ("GET", "PUT", "PUT", "PATCH", "PATCH", "PATCH", "DELETE")
_ODD_METHODS = ("HEAD", "OPTIONS", "TRACE", "FOO", "POST", "PUT", "PATCH", "DELETE")
_PATCHES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "application/apply-patch+cbor",
)
_TYPES = (
    "application/json",
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json; charset=utf-8",
    "application/cbor",
    "text/plain",
    "",
    "a/b/c;;=",
    *_PATCHES,
)
_ACCEPTS = (
    "",
    "*/*",
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/vnd.kubernetes.protobuf;stream=watch",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json",
    "application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io",
    "text/html;q=0.9",
    "application/json;as=Table;v=v9;g=x",
    ";;;,,q=",
    "application/json;stream=watch",
)
_SELECTORS = (
    "a=b",
    "a==b,c!=d",
    "a in (b,c)",
    "a notin ()",
    "!a",
    "a,",
    "a=b=c",
    "a in",
    "(",
    "=",
    "metadata.name=a",
    "spec.nodeName!=x",
    "status.phase=Running",
    "x" * 400 + "=y",
    "a=\x00",
    "\u00e4=\u00f6",
    "a\\,b=c",
    "a>1",
    "a<x",
)
#: None that is a version of the near future: a server waits three seconds for that.
_NUMBERS = ("0", "1", "-1", "2", "999999999999999999999", "x", "", "1.5", "0x1", " 1", "+1", "\u0663")
_WORDS = (
    "true",
    "false",
    "True",
    "1",
    "x",
    "All",
    "Strict",
    "Warn",
    "Ignore",
    "Exact",
    "NotOlderThan",
    "Background",
    "Foreground",
    "Orphan",
)
_PARAMETERS: dict[str, tuple[str, ...]] = {
    "labelSelector": _SELECTORS,
    "fieldSelector": _SELECTORS,
    "limit": _NUMBERS,
    "resourceVersion": _NUMBERS,
    "timeoutSeconds": ("1", "0", "-1", "x"),
    "continue": ("x", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhIn0", "e30", "\u00e4", "A" * 5000),
    "resourceVersionMatch": _WORDS,
    "watch": _WORDS,
    "allowWatchBookmarks": _WORDS,
    "sendInitialEvents": _WORDS,
    "dryRun": _WORDS,
    "fieldManager": ("m", "", "x" * 200, "\u00e4", "a\nb"),
    "force": _WORDS,
    "fieldValidation": _WORDS,
    "gracePeriodSeconds": _NUMBERS,
    "propagationPolicy": _WORDS,
    "orphanDependents": _WORDS,
    "pretty": _WORDS,
    "container": _WORDS,
    "follow": _WORDS,
    "tailLines": _NUMBERS,
    "command": _WORDS,
    "includeObject": ("None", "Object", "x"),
    "zzz": _WORDS,
}
#: Claimed identities: tokens that were never issued, headers of front proxies that are none, impersonated users.
_TOKENS = (
    "",
    "x",
    "a.b.c",
    "eyJhbGciOiJub25lIn0.e30.",
    "eyJhbGciOiJSUzI1NiIsImtpZCI6IngifQ.eyJpc3MiOiJodHRwczovL2t1YmVybmV0ZXMuZGVmYXVsdC5zdmMuY2x1c3Rlci5sb2NhbCJ9.AAAA",
    "eyJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJodHRwczovL2t1YmVybmV0ZXMuZGVmYXVsdC5zdmMuY2x1c3Rlci5sb2NhbCIsImV4cCI6MWU5OTl9.AA",
    "W10.W10.W10",
    "." * 50,
    "A" * 20_000,
    "\u00e4",
)
_CLAIMS: dict[str, tuple[str, ...]] = {
    "Authorization": (*(f"Bearer {token}" for token in _TOKENS), "Bearer", "Basic eDp5", "Bearer  x", "x"),
    "Impersonate-User": (
        "fuzz",
        "system:admin",
        "system:serviceaccount:default:a",
        "system:serviceaccount::",
        "system:node:a",
        "",
        "\u00e4",
    ),
    "Impersonate-Group": ("system:masters", "g", ""),
    "Impersonate-Uid": ("1", ""),
    "Impersonate-Extra-a%2fb": ("v",),
    "Impersonate-Extra-%zz": ("v",),
    "X-Remote-User": ("admin",),
    "X-Remote-Group": ("system:masters",),
    "Audit-Id": ("x", "a" * 500, "\u00e4"),
    "X-Forwarded-For": ("1.2.3.4, x", "::"),
    "User-Agent": ("", "a" * 3000, "kubectl/v1 (\u00e4)"),
}
#: An API that APIServices among the objects say is another server's, at an address without a listener.
ELSEWHERE = "/apis/fuzzed.example.com"
_OTHER_PATHS = (
    "/metrics/slis",
    "/readyz?verbose&exclude=x",
    "/livez/etcd",
    "/.well-known/openid-configuration",
    "/openid/v1/jwks",
    "/apis/fuzzed.example.com",
    "/apis/fuzzed.example.com/v1",
    "/apis/fuzzed.example.com/v1/namespaces/default/things/a?watch=1&timeoutSeconds=1",
    "/debug/compact?revision=x",
    "/",
    "/api",
    "/api/v1",
    "/apis",
    "/apis/apps",
    "/apis/apps/v1",
    "/apis/none/v1/x",
    "/openapi/v2",
    "/openapi/v3",
    "/openapi/v3/api/v1",
    "/healthz",
    "/readyz/x",
    "/livez?verbose",
    "/version",
    "/metrics",
    "/api/v1/namespaces",
    "/api/v1/namespaces/default",
    "/api/v1/watch/pods",
    "/api/v1/namespaces//pods",
    "//",
    "/api/v1/%00",
    "/apis/apps/v1/deployments",
    "/api/v1/pods",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/debug/pprof",
    "/logs",
    "/api/v1/componentstatuses",
)
_STRINGS = st.one_of(
    st.sampled_from(
        [
            "",
            "a",
            "\x00",
            "\ud83d\ude00",
            "x" * 300,
            "x" * 5000,
            "2020-01-01T00:00:00Z",
            "1Gi",
            "-1",
            "a/b",
            "a=b",
            "$(A)",
            "{{",
            "10.0.0.1",
            "::1",
        ]
    ),
    st.text(max_size=20),
)
_NUMERALS = st.one_of(st.integers(-3, 3), st.sampled_from([1 << 31, 1 << 63, -(1 << 63) - 1, 10**30, 1e308, -0.0, 0.1, 65536]))
_SCALARS = st.one_of(st.none(), st.booleans(), _NUMERALS, _STRINGS)
_KEYS = st.one_of(
    st.sampled_from(
        ["name", "metadata", "spec", "status", "kind", "$patch", "$retainKeys", "$setElementOrder/containers", "f:x", ".", "", "containers"]
    ),
    st.text(max_size=8),
)
VALUES = st.recursive(
    _SCALARS, lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(_KEYS, inner, max_size=4)), max_leaves=12
)


@dataclass(frozen=True)
class Sent:
    """A request. ``cut``: so many bytes of the body are promised and do not come; the connection is closed instead.

    ``alone``: on a connection without the administrator's certificate, so that what the headers say of the user counts.
    """

    method: str
    path: str
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    cut: int = 0
    alone: bool = False

    def __str__(self) -> str:
        return f"{self.method} {self.path} {self.headers} {self.body[:600]!r} cut={self.cut} alone={self.alone}"


def _places(tree: JSON, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of everything in a tree."""
    yield at
    for name, below in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        yield from _places(below, (*at, name))


@st.composite
def changed(draw: st.DrawFn, tree: JSON) -> JSON:
    """The tree with up to three things in it replaced, removed, doubled or added to."""
    made = copy.deepcopy(tree)
    for _ in range(draw(st.integers(0, 3))):
        path = draw(st.sampled_from(list(_places(made))))
        if not path:
            made = draw(VALUES) if draw(st.integers(0, 20)) == 0 else made
            continue
        parent = made
        for part in path[:-1]:
            parent = parent[part]
        how, last = draw(st.sampled_from(["replace", "remove", "add", "nest"])), path[-1]
        if how == "replace":
            parent[last] = draw(VALUES)
        elif how == "remove":
            del parent[last]
        elif how == "nest":
            parent[last] = [parent[last]] if draw(st.booleans()) else {draw(_KEYS): parent[last]}
        elif isinstance(parent, dict):
            parent[draw(_KEYS)] = draw(VALUES)
        else:
            parent.append(copy.deepcopy(parent[last]) if draw(st.booleans()) else draw(VALUES))
        if not isinstance(made, dict | list):
            break
    return made


_POINTERS = st.sampled_from(
    [
        "",
        "/",
        "/metadata",
        "/metadata/labels/app",
        "/spec",
        "/data/k",
        "/spec/containers/0",
        "/spec/containers/-",
        "/a~1b",
        "/~2",
        "x",
        "/metadata/name",
    ]
)
_OPERATIONS = st.lists(
    st.fixed_dictionaries(
        {"op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test", "x"]), "path": _POINTERS},
        optional={"value": VALUES, "from": _POINTERS},
    ),
    max_size=4,
)


@st.composite
def bodies(draw: st.DrawFn, collection: str, content_type: str) -> bytes:
    valid = KINDS.get(collection, {})
    kind = draw(st.integers(0, 11))
    if kind == 0:
        return draw(st.binary(max_size=60))
    if kind == 1:
        return draw(
            st.sampled_from(
                [
                    b"",
                    b"null",
                    b"[]",
                    b"{",
                    b'"x"',
                    b"\xff\xfe",
                    b"k8s\x00",
                    b"k8s\x00\x0a\x04\x0a\x02v1",
                    b"{}{}",
                    b"[" * 2000,
                    b"---\n---\n",
                    b"&a [*a]",
                    b"%PDF",
                ]
            )
        )
    tree = draw(_OPERATIONS) if "json-patch" in content_type else draw(changed(valid)) if kind < 11 else draw(VALUES)
    try:
        data = json.dumps(tree).encode()
    except UnicodeEncodeError:
        data = json.dumps(tree, ensure_ascii=True).encode()
    if kind == 2 and data:
        at = draw(st.integers(0, len(data) - 1))
        data = data[:at] + draw(st.binary(max_size=3)) + data[at + 1 :]
    if kind == 3:
        data = data[:1] + b'"a":1,"a":2,' + data[1:]
    if "protobuf" in content_type:
        data = b"k8s\x00\x0a\x12\x0a\x02v1\x12\x09ConfigMap\x00\x12" + draw(st.binary(max_size=40))
    return data


def _rarely(draw: st.DrawFn, one_in: int) -> bool:
    return draw(st.integers(1, one_in)) == one_in


@st.composite
def requests(draw: st.DrawFn) -> Sent:
    usual: tuple[str, ...] = ("GET",)
    if _rarely(draw, 10):
        path, collection = draw(st.sampled_from(_OTHER_PATHS)), ""
    else:
        collection = path = draw(st.sampled_from(list(KINDS)))
        usual = _ON_COLLECTIONS
        if draw(st.integers(0, 2)):
            usual = _ON_OBJECTS
            path += "/" + quote(draw(st.sampled_from(_ODD_NAMES if _rarely(draw, 8) else _NAMES)), safe="%")
            if _rarely(draw, 4):
                path += "/" + draw(st.sampled_from(_SUBRESOURCES))
    method = draw(st.sampled_from(_ODD_METHODS if _rarely(draw, 12) else usual))
    chosen = draw(st.lists(st.sampled_from(list(_PARAMETERS)), max_size=3)) if draw(st.booleans()) else []
    query = "&".join(f"{name}={quote(draw(st.sampled_from(_PARAMETERS[name])))}" for name in chosen)
    if method == "PATCH":
        content_type = draw(st.sampled_from(_PATCHES))
    else:
        content_type = draw(st.sampled_from(_TYPES)) if _rarely(draw, 4) else "application/json"
    headers = {"Content-Type": content_type, "Accept": draw(st.sampled_from(_ACCEPTS)) if _rarely(draw, 4) else ""}
    body = b"" if method in ("GET", "HEAD") else draw(bodies(collection, content_type))
    if _rarely(draw, 16):
        headers["Content-Encoding"] = draw(st.sampled_from(["gzip", "x", "identity"]))
        body = zlib.compress(body) if draw(st.booleans()) else body
    if _rarely(draw, 60) and method not in ("GET", "HEAD"):
        body += b" " * (4 << 20)
    alone = _rarely(draw, 8)
    if alone or _rarely(draw, 8):
        for name in draw(st.lists(st.sampled_from(list(_CLAIMS)), min_size=1, max_size=3)):
            headers[name] = draw(st.sampled_from(_CLAIMS[name]))
    cut = draw(st.integers(1, 5000)) if body and _rarely(draw, 25) else 0
    joined = "&" if "?" in path else "?"
    return Sent(
        method, path + (joined + query if query else ""), {name: value for name, value in headers.items() if value}, body, cut, alone
    )
