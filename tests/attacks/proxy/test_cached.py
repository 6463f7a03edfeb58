"""Caching mode: a client gets from the cache what it gets from the proxy without one.

Answers of the cache lack the headers by which an API server describes its own work: Audit-Id and X-Kubernetes-Pf-*.
"""

from __future__ import annotations

import asyncio
import json
import re

import pytest

from kubeloop.api.core.v1 import ConfigMap, ServiceAccount
from kubeloop.api.rbac.v1 import PolicyRule, Role, RoleBinding, RoleRef, Subject
from kubeloop.meta import ObjectMeta
from tests.attacks.conftest import GOLD, Answered, Thief
from tests.attacks.proxy.conftest import CHANGES_ONLY, HIDDEN, HOME, MISSING, SHOWN, OpenProxy, Proxied
from tests.servers import ServerUnderTest

_MAPS = f"{HOME}/configmaps"
_PODS = f"{HOME}/pods"
_META = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
_METAS = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
#: Headers of one request or one server process, and the length of a body whose versions may have more digits.
_VOLATILE = re.compile(r"(?mi)^(audit-id|date|content-length|x-kubernetes-pf-[a-z]+-uid): .*\r?\n?")
_VERSION = re.compile(r'("metadata":\{"resourceVersion":)"\d+"')
#: Pairs of a query with a semicolon or a broken escape, which an API server skips.
_SKIPPED = ["fieldSelector=metadata.name!%3D;", "fieldSelector=metadata.name!%3D%zz", "fieldSelector%zz=", "fieldSelector=;"]


def _comparable(answered: Answered) -> tuple[int, list[str], str]:
    head = _VOLATILE.sub("", answered.headers)
    return answered.status, sorted(line for line in head.split("\r\n") if line), _VERSION.sub(r"\1", answered.body)


_READS = [
    pytest.param(f"{_MAPS}/a-map?resourceVersion=0", {}, id="a get"),
    pytest.param(f"{_MAPS}/changed?resourceVersion=0", {}, id="a get of a changed object"),
    pytest.param(f"{_MAPS}/{HIDDEN}?resourceVersion=0", {}, id="a get of a hidden object"),
    pytest.param(f"{_MAPS}/{MISSING}?resourceVersion=0", {}, id="a get of a missing object"),
    pytest.param(f"{_MAPS}/a-map?resourceVersion=0", {"Accept": _META}, id="a get of metadata"),
    pytest.param(f"{_MAPS}/{HIDDEN}?resourceVersion=0", {"Accept": _META}, id="a get of a hidden object's metadata"),
    pytest.param(f"{_MAPS}/a-map?resourceVersion=0&pretty=true", {}, id="a get in a readable form"),
    pytest.param(f"{_MAPS}/{HIDDEN}?resourceVersion=0&pretty=true", {}, id="a get of a hidden object in a readable form"),
    pytest.param(f"{_MAPS}/a-map?resourceVersion=0", {"User-Agent": "curl/8"}, id="a get by curl"),
    pytest.param(f"{_MAPS}/a-map?resourceVersion=1", {}, id="a get at an old version"),
    pytest.param(f"{_MAPS}/a-map?resourceVersion=%D9%A3", {}, id="a get at a version in other digits"),
    pytest.param(f"{_MAPS}/a-map?resourceVersion=99999999999999999999999", {}, id="a get at a huge version"),
    pytest.param(f"{_MAPS}/a-map?resourceVersion={'9' * 5000}", {}, id="a get at a version of 5000 digits"),
    pytest.param(f"{_MAPS}?resourceVersion={'9' * 5000}", {}, id="a list at a version of 5000 digits"),
    pytest.param(f"{_MAPS}?resourceVersion=-1", {}, id="a list at a negative version"),
    pytest.param(f"{_MAPS}?resourceVersion=00", {}, id="a list at two zeros"),
    pytest.param(f"{_MAPS}?resourceVersion=%2B1", {}, id="a list at a version with a sign"),
    pytest.param(f"{_MAPS}?resourceVersion=%D9%A3", {}, id="a list at a version in other digits"),
    pytest.param(f"{_MAPS}?resourceVersion=18446744073709551616", {}, id="a list at a version that is too large"),
    pytest.param(f"{_MAPS}?resourceVersion=0&limit=%D9%A3", {}, id="a limit in other digits"),
    pytest.param(f"{_MAPS}?resourceVersion=0&limit=x", {}, id="a limit that is no number"),
    pytest.param(f"{_MAPS}?timeoutSeconds=x", {}, id="a list with a timeout that is no number"),
    pytest.param(f"{_MAPS}?timeoutSeconds=-1", {}, id="a list with a negative timeout"),
    pytest.param(f"{_MAPS}?allowWatchBookmarks=x", {}, id="a list with bookmarks by another word"),
    pytest.param(f"{_MAPS}?watch=false", {}, id="no watch"),
    pytest.param(f"{_MAPS}?resourceVersionMatch=NotOlderThan", {}, id="a match without a version"),
    pytest.param(f"{_MAPS}?resourceVersion=0&resourceVersionMatch=Exact", {}, id="exactly at 0"),
    pytest.param(f"{_MAPS}?resourceVersion=0&resourceVersionMatch=NotOlderThan", {}, id="not older than 0"),
    pytest.param(f"{_MAPS}?resourceVersion=0&resourceVersionMatch=notolderthan", {}, id="a match in other letters"),
    pytest.param(_MAPS, {}, id="a list"),
    pytest.param(_MAPS, {"Accept": _METAS}, id="a list of metadata"),
    pytest.param(_MAPS, {"Accept": _META}, id="a list as metadata of one object"),
    pytest.param(_MAPS, {"Accept": "application/json;stream=watch"}, id="a list as a stream"),
    pytest.param(_MAPS, {"Accept": "application/yaml"}, id="a list in YAML"),
    pytest.param(_MAPS, {"Accept": "application/json;q=0"}, id="a list in no JSON"),
    pytest.param(_MAPS, {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}, id="a Table"),
    pytest.param(f"{_MAPS}?pretty=1", {}, id="a list in a readable form"),
    pytest.param(_MAPS, {"User-Agent": "Mozilla/5.0"}, id="a list by a browser"),
    pytest.param(f"{_MAPS}?labelSelector=tier%3Dback", {}, id="the label of hidden objects"),
    pytest.param(f"{_MAPS}?labelSelector=!tier", {}, id="without the label"),
    pytest.param(f"{_MAPS}?labelSelector=price%3D{SHOWN}", {}, id="a label that a rule sets"),
    pytest.param(f"{_MAPS}?labelSelector=price+in+(a,{SHOWN})", {}, id="a label in a set"),
    pytest.param(f"{_MAPS}?labelSelector=%3D%3D", {}, id="a malformed label selector"),
    pytest.param(f"{_MAPS}?fieldSelector=data.price%3Dx", {}, id="a field that cannot be selected by"),
    pytest.param(f"{_MAPS}?fieldSelector=metadata.name%3Da-map", {}, id="the name"),
    pytest.param(f"{_MAPS}?fieldSelector=metadata.name%3Da-map,metadata.name%3Dz-map", {}, id="two names"),
    pytest.param(f"{_MAPS}?fieldSelector=metadata.name%3D%3Da-map", {}, id="the name with two equals signs"),
    pytest.param(f"{_MAPS}?fieldSelector=metadata.name!%3Da-map", {}, id="every other name"),
    pytest.param(f"{_MAPS}?fieldSelector=metadata.namespace%3Dx", {}, id="another namespace"),
    pytest.param(f"{_MAPS}?fieldSelector=metadata.name%3Da-map;", {}, id="the name with a semicolon"),
    pytest.param(f"{_MAPS}?fieldSelector=metadata.name%3Da-map%zz", {}, id="the name with a broken escape"),
    pytest.param(
        f"{_MAPS}?fieldSelector=metadata.name%3Da-map&fieldSelector=metadata.name!%3D;",
        {},
        id="the name, and a semicolon in a second selector",
    ),
    pytest.param(
        f"{_MAPS}?fieldSelector=metadata.name%3Da-map&fieldSelector=metadata.name!%3D%zz",
        {},
        id="the name, and a broken escape in a second selector",
    ),
    pytest.param(f"{_MAPS}?labelSelector=!price;", {}, id="a label selector with a semicolon"),
    pytest.param(f"{_MAPS}?=x", {}, id="a parameter without a name"),
    pytest.param(f"{_MAPS}?&&", {}, id="empty parameters"),
    pytest.param(f"{_MAPS}?resourceVersion=0&resourceVersion=1", {}, id="two versions"),
    pytest.param(f"{_PODS}?fieldSelector=status.phase%3DPending", {}, id="the phase"),
    pytest.param(f"{_PODS}?fieldSelector=spec.hostNetwork%3Dfalse", {}, id="a missing boolean"),
    pytest.param(f"{_PODS}?fieldSelector=spec.hostNetwork%3Dx", {}, id="a boolean that is none"),
    pytest.param(f"{_PODS}?fieldSelector=spec.hostNetwork%3D", {}, id="an empty boolean"),
    pytest.param(f"{_PODS}?fieldSelector=spec.nodeName%3D", {}, id="no node"),
    pytest.param(f"{_PODS}?fieldSelector=spec.restartPolicy!%3DAlways", {}, id="every other restart policy"),
    pytest.param(f"{_PODS}?fieldSelector=status.podIP%3D", {}, id="no address"),
    pytest.param(f"{_PODS}?fieldSelector=status.podIPs%3D", {}, id="no addresses"),
    pytest.param("/api/v1/namespaces/{home}?resourceVersion=0", {}, id="the namespace"),
    pytest.param("/api/v1/namespaces?resourceVersion=0&fieldSelector=metadata.name%3D{home}", {}, id="the namespace in a list"),
    pytest.param("/api/v1/namespaces?resourceVersion=0", {}, id="all namespaces"),
    pytest.param("/api/v1/configmaps?resourceVersion=0", {}, id="objects of all namespaces"),
    pytest.param("/api/v1/configmaps/a-map?resourceVersion=0", {}, id="a get without a namespace"),
    pytest.param("/api/v1/nones?resourceVersion=0", {}, id="no resource"),
    pytest.param(f"{HOME}/nones?resourceVersion=0", {}, id="no resource of the namespace"),
    pytest.param(f"{HOME}/nones/x?resourceVersion=0", {}, id="an object of no resource"),
    pytest.param(f"{HOME}/nodes?resourceVersion=0", {}, id="a resource without namespaces in one"),
    pytest.param(f"{HOME}/configmaps/?resourceVersion=0", {}, id="a slash at the end"),
    pytest.param("/apis/none/v1/namespaces/{home}/nones", {}, id="no group"),
    pytest.param("/api/v1%3Fx=/namespaces/{home}/configmaps?resourceVersion=0", {}, id="a question mark in the version"),
    pytest.param("/api/v1%3F/namespaces/{home}/configmaps/a-map?resourceVersion=0", {}, id="a get with a question mark in the version"),
    pytest.param("/api/v1%23/namespaces/{home}/configmaps?resourceVersion=0", {}, id="a fragment in the version"),
    pytest.param("/api/v1%20/namespaces/{home}/configmaps?resourceVersion=0", {}, id="a blank in the version"),
    pytest.param("/api/v1%25/namespaces/{home}/configmaps?resourceVersion=0", {}, id="a percent sign in the version"),
    pytest.param(
        "/api/v1%252f..%252fv1/namespaces/{home}/configmaps?resourceVersion=0", {}, id="dots and slashes encoded twice in the version"
    ),
    pytest.param("/apis/%3F/v1/namespaces/{home}/configmaps?resourceVersion=0", {}, id="a question mark as the group"),
    pytest.param("/apis/%C3%A9/v1/namespaces/{home}/configmaps?resourceVersion=0", {}, id="another letter as the group"),
    pytest.param("/apis/%FF/v1/namespaces/{home}/configmaps?resourceVersion=0", {}, id="a byte that is no text as the group"),
    pytest.param("/api/v1/namespaces/{home}/configmaps%3Fwatch=1?resourceVersion=0", {}, id="a question mark in the resource"),
    pytest.param("/api/v1/namespaces/{home}/configmaps/a-map%3F?resourceVersion=0", {}, id="a question mark in the name"),
    pytest.param("/api/v1/namespaces/{home}/configmaps?resourceVersion=0&labelSelector=%ED%A0%80", {}, id="half a character in a selector"),
    pytest.param(_MAPS, {"Authorization": ""}, id="without credentials"),
    pytest.param(f"{_MAPS}/{HIDDEN}?resourceVersion=0", {"Authorization": ""}, id="a get of a hidden object without credentials"),
    pytest.param(_MAPS, {"Authorization": "Bearer x"}, id="a wrong token"),
    pytest.param(_MAPS, {"Authorization": "Basic eDp4"}, id="a password"),
    pytest.param(_MAPS, {"Authorization": "Bearer"}, id="an empty token"),
    pytest.param(_MAPS, {"Impersonate-User": "admin"}, id="as another user"),
    pytest.param(_MAPS, {"Impersonate-Group": "system:masters"}, id="in another group"),
    pytest.param(_MAPS, {"Impersonate-User": "system:serviceaccount:{home}:stranger"}, id="as another account"),
    pytest.param(_MAPS, {"Authorization": "", "Impersonate-User": "admin"}, id="as another user without credentials"),
    pytest.param(f"{_MAPS}?watch=1&timeoutSeconds=1&resourceVersion=0", {}, id="a watch at 0"),
    pytest.param(f"{_MAPS}?watch=1&timeoutSeconds=1", {}, id="a watch"),
    pytest.param(f"{_MAPS}?watch=1&timeoutSeconds=1", {"Accept": _METAS}, id="a watch of lists of metadata"),
    pytest.param(f"{_MAPS}?watch=1&timeoutSeconds=1", {"Accept": _META}, id="a watch of metadata"),
    pytest.param(f"{_MAPS}?watch=1&timeoutSeconds=1", {"Accept": "application/json;stream=watch"}, id="a watch as a stream"),
    pytest.param(f"{_MAPS}?watch=1&timeoutSeconds=%D9%A1", {}, id="a watch with a timeout in other digits"),
    pytest.param(f"{_MAPS}?watch=1&timeoutSeconds=1&resourceVersion={'9' * 5000}", {}, id="a watch at a version of 5000 digits"),
    pytest.param(f"{_MAPS}?watch=1&timeoutSeconds=1&allowWatchBookmarks=x", {}, id="a watch with bookmarks by another word"),
    pytest.param(f"{_MAPS}?watch=1&timeoutSeconds=1&sendInitialEvents=false", {}, id="a watch without initial events"),
    pytest.param(
        f"{_MAPS}?watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1",
        {},
        id="a WatchList",
    ),
    pytest.param(
        f"{_MAPS}?watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", {}, id="a WatchList without bookmarks"
    ),
    pytest.param(f"{_MAPS}?watch=1&timeoutSeconds=1&resourceVersionMatch=NotOlderThan&resourceVersion=0", {}, id="a watch with a match"),
    pytest.param(f"{_MAPS}?watch=1&timeoutSeconds=1&labelSelector=price%3D{SHOWN}", {}, id="a watch of a label that a rule sets"),
    pytest.param(f"{_MAPS}?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Da-map;", {}, id="a watch of the name with a semicolon"),
    pytest.param("/api/v1/configmaps?watch=1&timeoutSeconds=1", {}, id="a watch of all namespaces"),
    pytest.param(f"{_MAPS}?watch=1&timeoutSeconds=1", {"Authorization": ""}, id="a watch without credentials"),
]


@pytest.mark.parametrize(("path", "headers"), _READS)
async def test_the_cache_answers_as_the_proxy_without_it(proxied: Proxied, caching: Proxied, path: str, headers: dict[str, str]) -> None:
    expected, found = await asyncio.gather(*(each.thief.ask("GET", path, headers) for each in (proxied, caching)))
    assert HIDDEN in path or HIDDEN not in found.body
    assert not found.has_gold
    assert _comparable(found) == _comparable(expected)


@pytest.mark.parametrize(
    ("query", "headers"),
    [
        pytest.param("resourceVersion=0", {}, id="at 0"),
        pytest.param("resourceVersion=1", {}, id="at an old version"),
        pytest.param("resourceVersion=99999999", {}, id="at a future version"),
        pytest.param("resourceVersion=0&pretty=true", {}, id="in a readable form"),
        pytest.param("resourceVersion=0", {"Accept": _META}, id="as metadata"),
        pytest.param("resourceVersion=0", {"Accept": "application/yaml, application/json"}, id="in YAML or JSON"),
        pytest.param("resourceVersion=0", {"Accept-Encoding": "gzip"}, id="compressed"),
    ],
)
@pytest.mark.parametrize("has_rights", [True, False])
async def test_in_the_cache_a_hidden_object_is_as_a_missing_one(
    caching: Proxied, query: str, headers: dict[str, str], has_rights: bool
) -> None:
    client = caching.thief if has_rights else caching.stranger
    answers = [await client.ask("GET", f"{_MAPS}/{name}?{query}", headers) for name in (HIDDEN, MISSING)]
    hidden, missing = ((*_comparable(each)[:2], each.body.replace(HIDDEN, "NAME").replace(MISSING, "NAME")) for each in answers)
    assert hidden == missing
    assert hidden[0] in ((404, 504) if has_rights else (403,))


# ------------------------------------------------------------------------------------------------------ queries and authorization


@pytest.fixture(scope="module")
def narrow(server: ServerUnderTest, caching: Proxied) -> Thief:
    """An account that may read a single ConfigMap, by its name."""
    administrator, home = server.administrator, caching.thief.home
    metadata = ObjectMeta(name="narrow", namespace=home)
    administrator.create(ServiceAccount(metadata=metadata))
    token = administrator.service_accounts.create_token("narrow", namespace=home, expiration_seconds=3600).status.token
    one = PolicyRule(api_groups=[""], resources=["configmaps"], resource_names=["a-map"], verbs=["get", "list", "watch"])
    administrator.create(Role(metadata=metadata, rules=[one]))
    administrator.create(
        RoleBinding(
            metadata=metadata,
            role_ref=RoleRef(api_group="rbac.authorization.k8s.io", kind="Role", name="narrow"),
            subjects=[Subject(kind="ServiceAccount", name="narrow", namespace=home)],
        ),
    )
    return Thief(caching.thief.host, caching.thief.port, caching.thief.tls, token, home, home)


@pytest.mark.parametrize("skipped", _SKIPPED)
@pytest.mark.parametrize("watch", ["", "&watch=1&timeoutSeconds=1"])
async def test_a_client_with_the_right_to_one_name_lists_no_other(narrow: Thief, skipped: str, watch: str) -> None:
    for query in (f"fieldSelector=metadata.name%3Da-map&{skipped}", f"{skipped}&fieldSelector=metadata.name%3Da-map", skipped):
        for version in ("", "&resourceVersion=0"):
            answered = await narrow.ask("GET", f"{_MAPS}?{query}{watch}{version}")
            assert answered.status == (403 if query == skipped else 200), answered.body
            assert "z-map" not in answered.body
            assert '"name":"changed"' not in answered.body


async def test_a_selector_that_the_api_server_skips_tells_no_original_value(open_proxy: OpenProxy) -> None:
    rules = CHANGES_ONLY.replace("[configmaps]", "[pods]").replace("names: [changed]", "names: [web]")
    rules = rules.replace("data.price: SHOWN, metadata.labels.price: SHOWN", "spec.restartPolicy: Never")
    with open_proxy(rules, cache=True) as proxied:
        for end in ("", ",metadata.name!%3D;", ",metadata.name!%3D%zz"):
            answers = [
                await proxied.thief.ask(
                    "GET", f"{_PODS}?fieldSelector=metadata.name%3Dweb,spec.restartPolicy%3D{value}{end}&resourceVersion=0"
                )
                for value in ("Always", "OnFailure")
            ]
            assert answers[0].status == 200
            assert _comparable(answers[0]) == _comparable(answers[1])


# -------------------------------------------------------------------------------------------------------------------- events


_WATCHES = [
    pytest.param("", {}, id="of everything"),
    pytest.param("", {"Accept": _META}, id="of metadata"),
    pytest.param("labelSelector=step%3Done", {}, id="of a label"),
    pytest.param("labelSelector=step!%3Done", {}, id="of the others"),
    pytest.param(f"labelSelector=price%3D{SHOWN}", {}, id="of a label that a rule sets"),
    pytest.param(f"labelSelector=price%3D{GOLD}", {}, id="of the original of a label"),
    pytest.param(f"labelSelector=price!%3D{SHOWN},step", {}, id="of all but a label that a rule sets"),
    pytest.param("labelSelector=tier%3Dback", {}, id="of the label of hidden objects"),
    pytest.param("labelSelector=!tier", {}, id="without this label"),
    pytest.param("fieldSelector=metadata.name%3Dw-moves", {}, id="of a name"),
    pytest.param("fieldSelector=metadata.name%3Dw-moves;", {}, id="of a name that the API server skips"),
    pytest.param("fieldSelector=metadata.name!%3Dw-moves", {"Accept": _META}, id="of the other names"),
]


@pytest.fixture(scope="module")
def histories(server: ServerUnderTest, proxied: Proxied, caching: Proxied) -> dict[tuple[str, str, bool, bool], Answered]:
    """The events of the same changes, by query, accepted form, caching, and whether the watch resumes after the changes."""
    thief, both = proxied.thief, {False: proxied.thief, True: caching.thief}
    watches = [(str(each.values[0]), str(dict(each.values[1]).get("Accept", ""))) for each in _WATCHES]  # type: ignore[call-overload]

    async def everything() -> dict[tuple[str, str, bool, bool], Answered]:
        await asyncio.gather(*(each.ask("GET", _MAPS) for each in both.values()))
        listed = await thief.ask("GET", f"{_MAPS}?resourceVersion=0")
        version = json.loads(listed.body)["metadata"]["resourceVersion"]

        async def watch(query: str, accept: str, cached: bool) -> Answered:
            path = f"{_MAPS}?watch=1&timeoutSeconds=3&resourceVersion={version}&{query}"
            return await both[cached].ask("GET", path, {"Accept": accept} if accept else {})

        async def change() -> None:
            await asyncio.sleep(1)
            await asyncio.to_thread(_change_everything, server, thief.home)

        keys = [(query, accept, cached) for query, accept in watches for cached in (False, True)]
        answers, _ = await asyncio.gather(asyncio.gather(*(watch(*key) for key in keys)), change())
        later = await asyncio.gather(*(watch(*key) for key in keys))
        return {
            (*key, resumed): each for resumed, found in ((False, answers), (True, later)) for key, each in zip(keys, found, strict=True)
        }

    return asyncio.run(everything())


def _change_everything(server: ServerUnderTest, home: str) -> None:
    """Objects that are hidden, visible, and both in turn; some with the original value in a label."""
    administrator = server.administrator

    def written(name: str, create: bool = False, **labels: str) -> None:
        tree = ConfigMap(metadata=ObjectMeta(name=name, namespace=home, labels=labels), data={"price": GOLD if "tier" in labels else "1"})
        if create:
            administrator.create(tree)
        else:
            found = administrator.get(ConfigMap, name, namespace=home)
            found.metadata.labels, found.data = labels, tree.data
            administrator.update(found)

    written("w-hidden", create=True, tier="back", step="one")
    written("w-hidden", tier="back", step="two")
    administrator.delete(ConfigMap, "w-hidden", namespace=home)
    written("w-moves", create=True, step="one")
    written("w-moves", step="two")
    written("w-moves", tier="back", step="two", price=GOLD)
    written("w-moves", tier="back", step="one", price=GOLD)
    written("w-moves", step="one")
    written("w-moves", tier="back", step="two")
    administrator.delete(ConfigMap, "w-moves", namespace=home)
    written("w-moves", create=True, tier="back", step="one")
    written("w-moves", step="one")
    administrator.delete(ConfigMap, "w-moves", namespace=home)
    found = administrator.get(ConfigMap, "changed", namespace=home)
    for step in ("one", "two"):
        found.metadata.labels = {"price": GOLD, "step": step}
        found = administrator.update(found)
    found.metadata.labels = {"price": GOLD}
    administrator.update(found)


@pytest.mark.parametrize(("query", "headers"), _WATCHES)
@pytest.mark.parametrize("resumed", [False, True])
def test_events_of_the_cache_are_those_of_the_proxy_without_it(
    histories: dict[tuple[str, str, bool, bool], Answered], query: str, headers: dict[str, str], resumed: bool
) -> None:
    key = query, headers.get("Accept", "")
    expected, found = histories[*key, False, resumed], histories[*key, True, resumed]
    assert not found.has_gold
    assert '"tier":"back"' not in found.body
    assert "w-hidden" not in found.body
    assert found.status == 200
    assert "X-Kubernetes-Pf" not in found.headers, "the cache did not answer"
    assert found.body.splitlines() == expected.body.splitlines()


async def test_a_watch_does_not_change_what_a_later_one_with_the_same_parameters_gets(server: ServerUnderTest, caching: Proxied) -> None:
    """Watches with equal selectors share their events."""
    thief = caching.thief
    query = "watch=1&timeoutSeconds=3&resourceVersion=0"
    watches = [
        asyncio.ensure_future(thief.ask("GET", f"{_MAPS}?{query}{pair}"))
        for pair in ("&fieldSelector=metadata.name%3Dnone;", "&fieldSelector=metadata.name%3Dnone%zz", "")
    ]
    await asyncio.sleep(1)
    metadata = ObjectMeta(name="w-shared", namespace=thief.home)
    await asyncio.to_thread(server.administrator.create, ConfigMap(metadata=metadata))
    await asyncio.to_thread(server.administrator.delete, ConfigMap, "w-shared", namespace=thief.home)
    for answered in await asyncio.gather(*watches):
        assert [json.loads(line)["type"] for line in answered.body.splitlines() if "w-shared" in line] == ["ADDED", "DELETED"]
