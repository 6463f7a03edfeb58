"""Other forms, spellings and parameters of a read: none shows a hidden object, the original of a changed one, or how many are hidden."""

from __future__ import annotations

import pytest

from tests.attacks.conftest import Answered, Thief, parsed
from tests.attacks.proxy.conftest import CHANGES_ONLY, HIDDEN, HOME, SHOWN, OpenProxy, Proxied, ask_all

_MAPS = f"{HOME}/configmaps"
_JSON = "application/json"
_META = "v=v1;g=meta.k8s.io"
_ACCEPTED = [
    pytest.param(_JSON, id="JSON"),
    pytest.param("", id="no header"),
    pytest.param("*/*", id="anything"),
    pytest.param("application/*", id="any application"),
    pytest.param("application/yaml", id="YAML"),
    pytest.param("application/cbor", id="CBOR"),
    pytest.param("application/cbor-seq", id="a sequence of CBOR"),
    pytest.param("application/vnd.kubernetes.protobuf", id="protobuf only"),
    pytest.param("application/vnd.kubernetes.protobuf,application/json", id="protobuf or JSON"),
    pytest.param("application/vnd.kubernetes.protobuf;stream=watch", id="protobuf as a stream"),
    pytest.param("application/json;stream=watch", id="JSON as a stream"),
    pytest.param(f"application/json;as=Table;{_META}", id="a Table"),
    pytest.param("application/json;as=Table;v=v1beta1;g=meta.k8s.io", id="a Table of the old version"),
    pytest.param("application/json;as=Table;v=v2;g=meta.k8s.io", id="a Table of no version"),
    pytest.param(f"application/json;as=Table;{_META},application/json", id="a Table or JSON"),
    pytest.param(f"application/json;q=0.1,application/json;as=Table;{_META};q=0.9", id="a Table, by quality"),
    pytest.param(f"application/vnd.kubernetes.protobuf;as=Table;{_META}", id="a Table in protobuf"),
    pytest.param(f"application/json;as=PartialObjectMetadataList;{_META}", id="a list of metadata"),
    pytest.param(f"application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;{_META}", id="a list of metadata in protobuf"),
    pytest.param(f"application/json;as=PartialObjectMetadata;{_META}", id="metadata of one object"),
    pytest.param(f"application/json;as=ConfigMapList;{_META}", id="a form that does not exist"),
    pytest.param("application/json;as=Table", id="a Table without a group"),
    pytest.param("APPLICATION/JSON", id="JSON in capitals"),
    pytest.param("text/plain", id="text"),
    pytest.param("application/json;q=0", id="no JSON"),
    pytest.param(",;=,", id="rubbish"),
]


def _shows_nothing(answered: Answered) -> None:
    text = answered.headers + answered.body
    assert HIDDEN not in text
    assert HIDDEN.encode("utf-16-le").decode("latin-1") not in text
    assert not answered.has_gold
    assert "remainingItemCount" not in text


_READS = [
    pytest.param(_MAPS, id="a list"),
    pytest.param(f"{_MAPS}?limit=2", id="a page"),
    pytest.param(f"{_MAPS}?watch=true&timeoutSeconds=1", id="a watch"),
    pytest.param(
        f"{_MAPS}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1",
        id="a WatchList",
    ),
    pytest.param(f"{_MAPS}/changed", id="a changed object"),
]


@pytest.fixture(scope="module")
def answers(proxied: Proxied) -> dict[tuple[str, str], Answered]:
    """The answers to all reads, by path and accepted form."""
    asked = [(str(path.values[0]), str(accept.values[0])) for path in _READS for accept in _ACCEPTED]
    asked += [(f"{_MAPS}?{query.values[0]}", str(accept)) for query in _QUERIES for accept in _TWO]
    return dict(zip(asked, ask_all(proxied.thief, [("GET", path, {"Accept": accept}) for path, accept in asked]), strict=True))


@pytest.mark.parametrize("accept", _ACCEPTED)
@pytest.mark.parametrize("path", _READS)
def test_no_form_of_an_answer_shows_more(answers: dict[tuple[str, str], Answered], accept: str, path: str) -> None:
    _shows_nothing(answers[path, accept])


@pytest.mark.parametrize(
    ("path", "status"),
    [
        pytest.param("{map}", 404, id="the plain way"),
        pytest.param("{map}/", 404, id="a slash at the end"),
        pytest.param("{maps}/%6d-secret-plan", 404, id="an encoded letter of the name"),
        pytest.param("{maps}/%256d-secret-plan", 400, id="a twice encoded letter of the name"),
        pytest.param("{maps}/a-map%2f..%2fm-secret-plan", 404, id="encoded slashes and dots"),
        pytest.param("{maps}/a-map/../m-secret-plan", 404, id="dots"),
        pytest.param("{maps}/./m-secret-plan", 404, id="one dot"),
        pytest.param("{maps}/%2e/m-secret-plan", 404, id="one encoded dot"),
        pytest.param("{maps}//m-secret-plan", 404, id="two slashes before the name"),
        pytest.param("/{map}", 404, id="two slashes before the path"),
        pytest.param("/api//v1/namespaces/{home}/configmaps/m-secret-plan", 404, id="two slashes within"),
        pytest.param("/%61pi/v1/namespaces/{home}/configmaps/m-secret-plan", 404, id="an encoded letter of the prefix"),
        pytest.param("/api/v1/namespaces/{home}/%63onfigmaps/m-secret-plan", 404, id="an encoded letter of the resource"),
        pytest.param("/api%2fv1/namespaces/{home}/configmaps/m-secret-plan", 404, id="an encoded slash in the prefix"),
        pytest.param("/version/../api/v1/namespaces/{home}/configmaps/m-secret-plan", 404, id="from a path that is no resource"),
        pytest.param("/openapi/v3/%2e%2e/%2e%2e/api/v1/namespaces/{home}/configmaps/m-secret-plan", 404, id="from the schemas"),
        pytest.param("/apis/../api/v1/namespaces/{home}/configmaps/m-secret-plan", 404, id="from the groups"),
        pytest.param("/apis//v1/namespaces/{home}/configmaps/m-secret-plan", 404, id="in a group without a name"),
        pytest.param("/apis/core/v1/namespaces/{home}/configmaps/m-secret-plan", 404, id="in a group that does not exist"),
        pytest.param("/API/v1/namespaces/{home}/configmaps/m-secret-plan", 403, id="in capitals"),
        pytest.param("/api/v1/namespaces/{home}/ConfigMaps/m-secret-plan", 404, id="a resource in capitals"),
        pytest.param("/api/v1/namespaces/{home}/configmap/m-secret-plan", 404, id="the singular"),
        pytest.param("/api/v1/namespaces/{home}/cm/m-secret-plan", 404, id="the short name"),
        pytest.param("{maps}/m-secret-plan%00", 404, id="a zero byte"),
        pytest.param("{maps}/m-secret-plan%0a", 404, id="a line break"),
        pytest.param("{maps}/m-secret-plan%20", 404, id="a blank"),
        pytest.param("{maps}/m-secret-plan;a=b", 404, id="parameters of the path"),
        pytest.param("{maps}/m-secret-plan%3fa=b", 404, id="an encoded question mark"),
        pytest.param("{maps}%5cm-secret-plan", 404, id="a backslash"),
        pytest.param("/api/v1/watch/namespaces/{home}/configmaps", 400, id="the watch of the old way"),
        pytest.param("/api/v1/watch/namespaces/{home}/configmaps/m-secret-plan", 400, id="the watch of one object in the old way"),
        pytest.param("/api/v1/%77atch/namespaces/{home}/configmaps", 400, id="the watch of the old way, encoded"),
        pytest.param("/api/v1/proxy/namespaces/{home}/pods/m-secret-plan", 400, id="the proxy of the old way"),
        pytest.param("/apis/apps/v1/watch/deployments", 400, id="the watch of the old way in a group"),
        pytest.param("/api/v1/namespaces/{home}/pods/web/proxy/../../../configmaps/m-secret-plan", 404, id="dots behind a proxied pod"),
        pytest.param("/api/v1/namespaces/{home}/pods/web/proxy/..%2f..%2fm-secret-plan", 404, id="encoded dots behind a proxied pod"),
        pytest.param("/api/v1/namespaces/{home}/services/x/proxy/%2e%2e/%2e%2e", 404, id="encoded dots behind a proxied service"),
        pytest.param("https://other.example{map}", 404, id="the whole address"),
        pytest.param("https://other.example/{map}", 404, id="the whole address with two slashes"),
        pytest.param("/metrics", 403, id="the metrics of the API server"),
        pytest.param("/logs/", 403, id="its logs"),
        pytest.param("/debug/pprof/", 403, id="its profiler"),
        pytest.param("/debug/api_priority_and_fairness/dump_requests", 403, id="its waiting requests"),
    ],
)
async def test_no_spelling_of_a_path_leads_to_a_hidden_object(thief: Thief, path: str, status: int) -> None:
    answered = await thief.ask("GET", path.replace("{map}", "{maps}/m-secret-plan").replace("{maps}", _MAPS))
    assert not answered.has_gold
    assert answered.status == status, answered.body[:300]


_TWO = [_JSON, f"application/json;as=Table;{_META}"]
_QUERIES = [
    pytest.param("labelSelector=tier%3Dback", 200, id="the label of hidden objects"),
    pytest.param("labelSelector=!tier", 200, id="without the label"),
    pytest.param("labelSelector=a&labelSelector=tier%3Dback", 200, id="two label selectors"),
    pytest.param("label%53elector=tier%3Dback", 200, id="an encoded name of a parameter"),
    pytest.param("labelSelector=a;labelSelector=tier%3Dback", 200, id="a semicolon between parameters"),
    pytest.param("fieldSelector=metadata.name%3Dm-secret-plan", 200, id="the name"),
    pytest.param("fieldSelector=metadata.name%21%3Dm-secret-plan", 200, id="every other name"),
    pytest.param("resourceVersion=1&resourceVersionMatch=Exact", 200, id="before anything existed"),
    pytest.param("resourceVersion=0", 200, id="from the cache"),
    pytest.param("includeObject=Object", 200, id="with objects"),
    pytest.param("includeObject=None", 200, id="without objects"),
    pytest.param("include%4fbject=None", 200, id="without objects, encoded"),
    pytest.param("includeObject=Object&includeObject=None", 200, id="with and without objects"),
    pytest.param("limit=-1", 200, id="a negative limit"),
    pytest.param("limit=1&limit=500", 200, id="two limits"),
    pytest.param("limit=%2B1", 200, id="a limit with a sign"),
    pytest.param("limit=1&continue=", 200, id="an empty token"),
    pytest.param("limit=1&continue=rubbish", 400, id="a token that is rubbish"),
    pytest.param("watch=false&watch=true", 200, id="no watch and a watch"),
    pytest.param("watch=0", 200, id="no watch as a number"),
    pytest.param("watch=FALSE", 200, id="no watch in capitals"),
    pytest.param("w%61tch=1&timeoutSeconds=1", 200, id="a watch with an encoded name"),
    pytest.param("watch=&timeoutSeconds=1", 200, id="a watch without a value"),
    pytest.param("watch=yes&timeoutSeconds=1", 200, id="a watch by another word"),
    pytest.param("watch=true&watch=false&timeoutSeconds=1", 200, id="a watch and no watch"),
    pytest.param("watch=%zz", 200, id="a watch with a broken escape"),
    pytest.param("watch=1;timeoutSeconds=1", 200, id="a watch before a semicolon"),
    pytest.param("watch=1&timeoutSeconds=1&resourceVersion=0", 200, id="a watch from the cache"),
    pytest.param("watch=1&timeoutSeconds=1&limit=1", 200, id="a watch with a limit"),
    pytest.param("watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Dm-secret-plan", 200, id="a watch of the name"),
    pytest.param("pretty=true", 200, id="in a readable form"),
    pytest.param("export=true&exact=true", 200, id="as an export"),
    pytest.param("shardSelector=x", 200, id="a parameter of later versions"),
]


@pytest.mark.parametrize(("query", "status"), _QUERIES)
@pytest.mark.parametrize("accept", _TWO)
def test_no_parameter_of_a_list_shows_more(answers: dict[tuple[str, str], Answered], query: str, status: int, accept: str) -> None:
    answered = answers[f"{_MAPS}?{query}", accept]
    # The attacker's own selector can be quoted in an error.
    assert not answered.has_gold
    assert f'"name":"{HIDDEN}"' not in answered.body
    assert "remainingItemCount" not in answered.body
    assert answered.status == status, answered.body[:300]


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"Accept-Encoding": "gzip"}, id="compressed"),
        pytest.param({"Accept-Encoding": "br, zstd, identity;q=0"}, id="compressed in another way"),
        pytest.param({"If-None-Match": "*"}, id="only if it changed"),
        pytest.param({"If-None-Match": '"x"', "If-Modified-Since": "Thu, 01 Jan 1970 00:00:00 GMT"}, id="only if it changed since"),
        pytest.param({"Range": "bytes=0-10"}, id="a part"),
        pytest.param({"Range": "bytes=0-10", "If-Range": '"x"'}, id="a part, if"),
        pytest.param({"X-HTTP-Method-Override": "DELETE"}, id="another method"),
        pytest.param({"X-Original-URL": "/api/v1/configmaps"}, id="another address"),
        pytest.param({"X-Rewrite-URL": "/api/v1/configmaps"}, id="another address by another name"),
        pytest.param({"Forwarded": "for=127.0.0.1", "X-Forwarded-For": "127.0.0.1", "X-Real-Ip": "127.0.0.1"}, id="from here"),
        pytest.param({"X-Forwarded-Prefix": "/api/v1"}, id="a prefix"),
        pytest.param({"Connection": "Accept, Accept-Encoding, User-Agent"}, id="headers that a proxy must remove"),
        pytest.param({"Te": "trailers", "Trailer": "Impersonate-User"}, id="trailers"),
        pytest.param({"Cookie": "a=b", "Origin": "https://x", "Sec-Fetch-Mode": "cors"}, id="as a browser"),
    ],
)
@pytest.mark.parametrize("path", [_MAPS, f"{_MAPS}/changed", f"{_MAPS}/{HIDDEN}"])
async def test_no_header_of_a_read_shows_more(thief: Thief, path: str, headers: dict[str, str]) -> None:
    answered = await thief.ask("GET", path, headers)
    assert answered.status == (404 if path.endswith(HIDDEN) else 200), answered.body[:300]
    assert not answered.has_gold
    assert path.endswith(HIDDEN) or HIDDEN not in answered.body


async def test_selectors_see_what_the_client_sees(thief: Thief) -> None:
    """A selector on an original value would be an oracle: ask for each guess whether the object is found."""
    for selector, found in (
        ("price=the-gold-of-the-other-namespace", False),
        ("price!=the-gold-of-the-other-namespace", True),
        ("price=nothing-to-see", True),
    ):
        for query in ("", "&limit=1", "&watch=1&timeoutSeconds=1"):
            answered = await thief.ask("GET", f"{_MAPS}?labelSelector={selector.replace('=', '%3D')}{query}")
            assert answered.status == 200, answered.body
            if "limit" not in query:
                assert ('"name":"changed"' in answered.body) is found, (selector, query, answered.body[:300])


_UPGRADES = [
    pytest.param("websocket", id="a WebSocket"),
    pytest.param("SPDY/3.1", id="SPDY"),
    pytest.param("h2c", id="HTTP/2"),
    pytest.param("TLS/1.0", id="TLS"),
]


@pytest.mark.parametrize("protocol", _UPGRADES)
@pytest.mark.parametrize("path", [f"{_MAPS}?watch=1&timeoutSeconds=1", _MAPS, f"{_MAPS}/changed", f"{_MAPS}/{HIDDEN}", "/version"])
@pytest.mark.parametrize(
    "connection",
    [
        pytest.param(b"Connection: Upgrade, close\r\n", id="in one header"),
        pytest.param(b"Connection: close\r\nConnection: Upgrade\r\n", id="in the second of two headers"),
        pytest.param(b"Connection: keep-alive, \t uPgRaDe, close\r\n", id="in other letters"),
    ],
)
async def test_no_upgrade_leads_round_the_rules(thief: Thief, protocol: str, path: str, connection: bytes) -> None:
    """A kube-apiserver serves watches over WebSockets, whose frames the proxy would not see."""
    sent = (
        f"GET {thief.written(path)} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {thief.token}\r\nUpgrade: {protocol}\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    ).encode() + connection
    # What would be a request behind the upgrade must not be served without a look at it.
    smuggled = f"\r\nGET {thief.written(_MAPS)}/{HIDDEN} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
    for answered in parsed(await thief.raw(sent + smuggled)):
        assert answered.status != 101
        assert not answered.has_gold


async def test_the_old_name_of_a_field_selects_no_original_value(open_proxy: OpenProxy) -> None:
    """The API server selects pods by spec.host as by spec.nodeName."""
    rules = CHANGES_ONLY.replace("[configmaps]", "[pods]").replace("names: [changed]", "names: [web]")
    rules = rules.replace("data.price: SHOWN, metadata.labels.price: SHOWN", "spec.nodeName: SHOWN")
    with open_proxy(rules) as proxied:
        for field in ("spec.nodeName", "spec.host"):
            for value, found in (("", False), (SHOWN, True)):
                answered = await proxied.thief.ask("GET", f"{HOME}/pods?fieldSelector={field}%3D{value}")
                assert answered.status == 200, answered.body
                assert ('"name":"web"' in answered.body) is found, (field, value)
