"""Conversion webhooks: objects of a custom resource in all versions, on both servers."""

from __future__ import annotations

import asyncio
import copy
import itertools
import json
import os
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from kubeloop.meta.errors import ApiError, Conflict, NotFound, TooManyRequests
from kubeloop.types import JSONObject
from tests.apiserver.webhooks.conftest import World
from tests.apiserver.webhooks.scripted import Raw, Script

pytestmark = pytest.mark.server


CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_NUMBERS = itertools.count(1)
_FIELDS = {"v1": "size", "v2": "count"}
_PATIENCE = 20.0


def convert(review: JSONObject) -> JSONObject:
    """``spec.size`` of v1 is ``spec.count`` of v2."""
    to = review["request"]["desiredAPIVersion"]
    made = [_moved(copy.deepcopy(one), to) for one in review["request"]["objects"]]
    response = {"uid": review["request"]["uid"], "result": {"status": "Success"}, "convertedObjects": made}
    return {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}


def _moved(obj: JSONObject, to: str) -> JSONObject:
    spec, wanted = obj.get("spec", {}), _FIELDS[to.rpartition("/")[2]]
    for field in _FIELDS.values():
        if field in spec:
            spec[wanted] = spec.pop(field)
    obj["apiVersion"] = to
    return obj


def bent(change: Callable[[JSONObject], Any]) -> Script:
    """A conversion whose answer ``change`` makes wrong."""

    def script(review: JSONObject) -> JSONObject:
        answer = convert(review)
        change(answer)
        return answer

    return script


class Things:
    """A custom resource of the test's own; v1 is stored at first."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.group = f"test{os.getpid()}x{next(_NUMBERS)}.example.com"
        self.name = f"things.{self.group}"

    def definition(self, storage: str = "v1", reviews: tuple[str, ...] = ("v1",)) -> JSONObject:
        webhook = {"clientConfig": self.world.hook.on("/convert", convert), "conversionReviewVersions": list(reviews)}
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": self.name},
            "spec": {
                "group": self.group,
                "scope": "Namespaced",
                "names": {"plural": "things", "kind": "Thing"},
                "versions": [_version("v1", storage == "v1"), _version("v2", storage == "v2")],
                "conversion": {"strategy": "Webhook", "webhook": webhook},
            },
        }

    def path(self, version: str, name: str = "") -> str:
        return f"/apis/{self.group}/{version}/namespaces/{self.world.namespace}/things" + (f"/{name}" if name else "")

    async def create(self, version: str, name: str, number: int) -> JSONObject:
        body = {"apiVersion": f"{self.group}/{version}", "kind": "Thing", "metadata": {"name": name}, "spec": {_FIELDS[version]: number}}
        made: JSONObject = await self.world("POST", self.path(version), body)
        return made

    async def served(self) -> None:
        """Wait until all versions are served: a moment after the definition says so."""
        async with asyncio.timeout(_PATIENCE):
            for version in _FIELDS:
                while True:
                    try:
                        await self.world("GET", self.path(version))
                        break
                    except (NotFound, TooManyRequests):
                        await asyncio.sleep(0.02)

    @property
    def reviews(self) -> list[JSONObject]:
        return self.world.hook.seen.get("/convert", [])


def _version(name: str, storage: bool) -> JSONObject:
    number, text = {"type": "integer"}, {"type": "string", "default": f"default of {name}"}
    spec = {"type": "object", "properties": {_FIELDS[name]: number, f"only{name}": text}}
    schema = {"type": "object", "properties": {"spec": spec, "status": {"type": "object", "properties": {"n": number}}}}
    scale = {"specReplicasPath": f".spec.{_FIELDS[name]}", "statusReplicasPath": ".status.n"}
    column = {"name": "N", "type": "integer", "jsonPath": f".spec.{_FIELDS[name]}"}
    return {
        "name": name,
        "served": True,
        "storage": storage,
        "subresources": {"status": {}, "scale": scale},
        "additionalPrinterColumns": [column],
        "selectableFields": [{"jsonPath": f".spec.{_FIELDS[name]}"}],
        "schema": {"openAPIV3Schema": schema},
    }


@pytest.fixture
async def things(world: World) -> AsyncIterator[Things]:
    found = Things(world)
    await world("POST", CRDS, found.definition())
    try:
        await found.served()
        yield found
    finally:
        world.hook.on("/convert", convert)
        await world("DELETE", f"{CRDS}/{found.name}")


async def test_an_object_is_read_in_any_version(things: Things, world: World) -> None:
    await things.create("v1", "a", 3)
    await things.create("v2", "b", 4)
    assert (await world("GET", things.path("v2", "a")))["spec"] == {"count": 3}
    assert (await world("GET", things.path("v1", "b")))["spec"] == {"size": 4, "onlyv1": "default of v1"}
    listed = await world("GET", things.path("v2"))
    assert [(one["apiVersion"], one["spec"]) for one in listed["items"]] == [
        (f"{things.group}/v2", {"count": 3}),
        (f"{things.group}/v2", {"count": 4}),
    ]


async def test_the_answer_was_converted_to_the_stored_version_and_back(things: Things) -> None:
    made = await things.create("v2", "b", 4)
    assert made["spec"] == {"count": 4}, "the default of v2 has no place in v1"
    assert made["metadata"]["resourceVersion"]


async def test_the_webhook_sees_defaults_and_no_resource_version(things: Things, world: World) -> None:
    await things.create("v1", "a", 3)
    things.reviews.clear()
    await world("GET", things.path("v2", "a"))
    request = things.reviews[0]["request"]
    assert request["desiredAPIVersion"] == f"{things.group}/v2"
    (obj,) = request["objects"]
    assert obj["spec"] == {"size": 3, "onlyv1": "default of v1"}
    assert "resourceVersion" not in obj["metadata"]
    assert obj["metadata"]["uid"]


async def test_updates_and_patches_of_a_version_that_is_not_stored(things: Things, world: World) -> None:
    made = await things.create("v2", "b", 4)
    made["spec"]["count"] = 5
    put = await world("PUT", things.path("v2", "b"), made)
    assert (put["spec"], put["metadata"]["generation"]) == ({"count": 5}, 2)
    patched = await world("PATCH", things.path("v2", "b"), {"spec": {"count": 6}}, "application/merge-patch+json")
    assert (patched["spec"], patched["metadata"]["generation"]) == ({"count": 6}, 3)
    assert (await world("GET", things.path("v1", "b")))["spec"]["size"] == 6


async def test_status_and_scale_of_a_version_that_is_not_stored(things: Things, world: World) -> None:
    await things.create("v1", "a", 3)
    status = await world("PATCH", things.path("v2", "a") + "/status", {"status": {"n": 2}}, "application/merge-patch+json")
    assert (status["spec"], status["status"]) == ({"count": 3}, {"n": 2})
    scale = await world("PATCH", things.path("v2", "a") + "/scale", {"spec": {"replicas": 7}}, "application/merge-patch+json")
    assert (scale["spec"], scale["status"]["replicas"]) == ({"replicas": 7}, 2)
    assert (await world("GET", things.path("v1", "a")))["spec"]["size"] == 7


async def test_a_dry_run_stores_nothing(things: Things, world: World) -> None:
    body = {"apiVersion": f"{things.group}/v2", "kind": "Thing", "metadata": {"name": "d"}, "spec": {"count": 1}}
    assert (await world("POST", things.path("v2"), body, dryRun="All"))["spec"]["count"] == 1
    assert (await world.refused("GET", things.path("v2", "d"))).status.code == 404


async def test_selectors_and_tables_are_those_of_the_version_asked_for(things: Things, world: World) -> None:
    await things.create("v1", "a", 3)
    await things.create("v2", "b", 4)
    found = await world("GET", things.path("v2"), fieldSelector="spec.count=4")
    assert [one["metadata"]["name"] for one in found["items"]] == ["b"]
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    table = json.loads((await world.transport.request("GET", things.path("v2"), accept=accept)).body)
    assert [row["cells"] for row in table["rows"]] == [["a", 3], ["b", 4]]


async def test_a_watch_shows_its_own_version(things: Things, world: World) -> None:
    made = await things.create("v1", "a", 3)
    query: dict[str, str | bool] = {"watch": True, "resourceVersion": made["metadata"]["resourceVersion"]}
    async with asyncio.timeout(_PATIENCE), world.transport.stream("GET", things.path("v2"), query=query) as stream:
        await things.create("v2", "b", 4)
        await world("PATCH", things.path("v1", "b"), {"spec": {"size": 5}}, "application/merge-patch+json")
        await world("DELETE", things.path("v1", "b"))
        data = b""
        async for chunk in stream.chunks():
            data += chunk
            if data.count(b"\n") == 3:
                break
    events = [json.loads(line) for line in data.splitlines()]
    shown = [(one["type"], one["object"]["apiVersion"], one["object"]["spec"]) for one in events]
    v2 = f"{things.group}/v2"
    assert shown == [("ADDED", v2, {"count": 4}), ("MODIFIED", v2, {"count": 5}), ("DELETED", v2, {"count": 5})]


async def test_owners_in_one_version_meet_owners_in_another(things: Things, world: World) -> None:
    async def apply(version: str, manager: str, number: int, **query: Any) -> JSONObject:
        spec = {_FIELDS[version]: number}
        body = {"apiVersion": f"{things.group}/{version}", "kind": "Thing", "metadata": {"name": "a"}, "spec": spec}
        made: JSONObject = await world(
            "PATCH", things.path(version, "a"), body, "application/apply-patch+yaml", fieldManager=manager, **query
        )
        return made

    await apply("v1", "one", 3)
    with pytest.raises(Conflict) as met:
        await apply("v2", "two", 4)
    assert [(cause.field, cause.message) for cause in met.value.causes] == [(".spec.size", 'conflict with "one"')]
    made = await apply("v2", "two", 4, force=True)
    owned = {one["manager"]: (one["apiVersion"].rpartition("/")[2], one["fieldsV1"]) for one in made["metadata"]["managedFields"]}
    assert made["spec"]["count"] == 4
    assert owned["two"] == ("v2", {"f:spec": {"f:count": {}}})
    assert "one" not in owned


async def test_the_stored_version_may_change_and_is_remembered(things: Things, world: World) -> None:
    await things.create("v1", "a", 3)
    before = await world("GET", f"{CRDS}/{things.name}")
    switched = await world("PUT", f"{CRDS}/{things.name}", {**before, "spec": things.definition("v2")["spec"]})
    assert switched["status"]["storedVersions"] == ["v1", "v2"]
    await _until_stored_in(things, "v2")
    assert (await world("GET", things.path("v1", "a")))["spec"] == {"size": 3, "onlyv1": "default of v1"}
    assert (await world("GET", things.path("v2", "a")))["spec"] == {"count": 3}


async def _until_stored_in(things: Things, version: str) -> None:
    """A new object of another version is then shown to the webhook on its way to ``version``."""
    other = next(one for one in _FIELDS if one != version)
    async with asyncio.timeout(_PATIENCE):
        for number in itertools.count():
            things.reviews.clear()
            await things.create(other, f"probe-{number}", 1)
            if any(one["request"]["desiredAPIVersion"].endswith(version) for one in things.reviews):
                return
            await asyncio.sleep(0.05)


async def test_a_version_that_was_stored_must_stay_until_it_is_taken_from_the_status(things: Things, world: World) -> None:
    before = await world("GET", f"{CRDS}/{things.name}")
    switched = await world("PUT", f"{CRDS}/{things.name}", {**before, "spec": things.definition("v2")["spec"]})
    without = copy.deepcopy(switched)
    without["spec"]["versions"] = [one for one in without["spec"]["versions"] if one["name"] == "v2"]
    met = await world.refused("PUT", f"{CRDS}/{things.name}", without)
    assert (met.status.code, met.causes[0].field) == (422, "status.storedVersions[0]")
    migrated = {**switched, "status": {**switched["status"], "storedVersions": ["v2"]}}
    assert (await world("PUT", f"{CRDS}/{things.name}/status", migrated))["status"]["storedVersions"] == ["v2"]


def _first(answer: JSONObject) -> JSONObject:
    found: JSONObject = answer["response"]["convertedObjects"][0]
    return found


@pytest.mark.parametrize(
    ("script", "message"),
    [
        pytest.param(lambda _: Raw(b"boom", 500, headers={"Content-Type": "text/plain"}),
                     'failed: an error on the server ("boom") has prevented the request from succeeding', id="an error"),
        pytest.param(lambda _: Raw(b"{"), "failed: couldn't get version/kind; json parse error: unexpected end of JSON input",
                     id="half an answer"),
        pytest.param(bent(lambda review: review.pop("response")), "failed: no response provided", id="no response"),
        pytest.param(bent(lambda review: [review.pop("kind"), review.pop("apiVersion")]),
                     "failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got /, Kind=", id="no kind"),
        pytest.param(bent(lambda review: review["response"].update(result={"status": "Failure", "message": "cannot do"})),
                     "failed: cannot do",
                     id="a failure says why"),
        pytest.param(bent(lambda review: review["response"].update(result={"status": "Failure"})),
                     "failed: response.result.status was 'Failure', not 'Success'", id="a failure that does not say why"),
        pytest.param(bent(lambda review: review["response"].pop("result")), "failed: response.result.status was '', not 'Success'",
                     id="no result"),
        pytest.param(bent(lambda review: review["response"].update(convertedObjects=[])), "returned 0 objects, expected 1", id="too few"),
        pytest.param(bent(lambda review: _first(review).update(kind="Other")),
                     "returned invalid object at index 0: invalid kind (expected Thing, received Other)", id="another kind"),
        pytest.param(bent(lambda review: _first(review)["metadata"].update(name="q")),
                     "returned invalid object: must have the same name: x != q", id="another name"),
        pytest.param(bent(lambda review: _first(review).pop("metadata")), "returned invalid object: must have the same name: x != ",
                     id="no metadata"),
        pytest.param(bent(lambda review: _first(review)["metadata"].update(labels={"a": 3})),
                     "returned invalid metadata: metadata.labels[a] must be a string, but is int64 in converted object",
                     id="a label that is no text"),
        pytest.param(bent(lambda review: _first(review)["metadata"].update(labels=[])),
                     "returned invalid metadata: invalid metadata.labels of type []interface {} in converted object",
                     id="labels that are no map"),
        pytest.param(bent(lambda review: _first(review)["metadata"].update(labels={"a": "b c"})),
                     'returned invalid metadata: metadata.labels: Invalid value: "b c": a valid label must be an empty string or consist '
                     "of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue', "
                     " or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
                     id="a label that cannot be"),
    ],
)  # fmt: skip
async def test_a_conversion_that_fails_refuses_the_request_and_says_why(things: Things, world: World, script: Script, message: str) -> None:
    world.hook.on("/convert", script)
    with pytest.raises(ApiError) as met:
        await things.create("v2", "x", 4)
    shown = f"conversion webhook for {things.group}/v2, Kind=Thing {message}"
    assert (met.value.status.code, met.value.status.reason, met.value.status.message) == (500, "", shown)


async def test_a_conversion_that_fails_refuses_updates_of_a_version_that_is_not_stored(things: Things, world: World) -> None:
    made = await things.create("v2", "b", 4)
    made["spec"]["count"] = 5
    world.hook.on("/convert", bent(lambda review: review["response"].update(result={"status": "Failure", "message": "cannot do"})))
    for method, body, kind in (("PUT", made, "application/json"), ("PATCH", {"spec": {"count": 5}}, "application/merge-patch+json")):
        refused = await world.refused(method, things.path("v2", "b"), body, kind)
        assert (refused.status.code, refused.status.message.endswith(", Kind=Thing failed: cannot do")) == (500, True)
    world.hook.on("/convert", convert)
    assert (await world("GET", things.path("v2", "b")))["spec"]["count"] == 4


async def test_a_conversion_that_fails_takes_away_owners_in_another_version_and_refuses_nothing(things: Things, world: World) -> None:
    """In the stored version only fields that are owned in another version need a conversion: upstream forgets that."""
    await things.create("v2", "b", 4)
    world.hook.on("/convert", bent(lambda review: review["response"].update(result={"status": "Failure", "message": "cannot do"})))
    patched = await world("PATCH", things.path("v1", "b"), {"spec": {"size": 5}}, "application/merge-patch+json")
    assert (patched["spec"]["size"], "managedFields" in patched["metadata"]) == (5, False)


async def test_labels_and_annotations_are_the_webhooks_and_no_other_metadata(things: Things, world: World) -> None:
    change = {"labels": {"converted": "yes"}, "annotations": {"by": "hook"}, "finalizers": ["x/y"], "generation": 77}
    world.hook.on("/convert", bent(lambda review: _first(review)["metadata"].update(change)))
    made = (await things.create("v2", "x", 4))["metadata"]
    assert (made["labels"], made["annotations"], made["generation"]) == ({"converted": "yes"}, {"by": "hook"}, 1)
    assert "finalizers" not in made


async def test_reviews_of_v1beta1(things: Things, world: World) -> None:
    before = await world("GET", f"{CRDS}/{things.name}")
    await world("PUT", f"{CRDS}/{things.name}", {**before, "spec": things.definition(reviews=("v1beta1",))["spec"]})
    async with asyncio.timeout(_PATIENCE):
        for number in itertools.count():
            things.reviews.clear()
            await things.create("v2", f"x-{number}", 4)
            if things.reviews[0]["apiVersion"].endswith("/v1beta1"):
                return
            await asyncio.sleep(0.05)


async def test_instances_go_with_their_definition(world: World) -> None:
    things = Things(world)
    await world("POST", CRDS, things.definition())
    await things.served()
    await things.create("v2", "b", 4)
    await world("DELETE", f"{CRDS}/{things.name}")
    async with asyncio.timeout(_PATIENCE):
        while True:
            try:
                await world("GET", f"{CRDS}/{things.name}")
            except NotFound:
                break
            await asyncio.sleep(0.02)


async def test_a_definition_whose_webhook_cannot_be_trusted_is_not_established_until_it_can(world: World) -> None:
    things = Things(world)
    path, tree = f"{CRDS}/{things.name}", things.definition()
    client = tree["spec"]["conversion"]["webhook"]["clientConfig"]
    good, client["caBundle"] = client["caBundle"], "enp6"
    await world("POST", CRDS, tree)
    try:
        await _established(world, path, "False", "InvalidCABundle")
        client["caBundle"] = good
        await world("PATCH", path, {"spec": tree["spec"]}, "application/merge-patch+json")
        await _established(world, path, "True")
        await things.served()
        await things.create("v2", "a", 3)
        client["caBundle"] = "enp6"
        met = await world.refused("PATCH", path, {"spec": tree["spec"]}, "application/merge-patch+json")
        assert [(cause.field, cause.message) for cause in met.causes] == [
            (
                "spec.conversion.webhookClientConfig.caBundle",
                'Invalid value: "enp6": unable to load root certificates: unable to parse bytes as PEM block',
            )
        ]
    finally:
        await world("DELETE", path)


async def _established(world: World, path: str, status: str, reason: str | None = None) -> JSONObject:
    """The condition, once it has ``status``, and ``reason`` if one is named: on the way there a real server says ``Installing``."""
    async with asyncio.timeout(_PATIENCE):
        while True:
            conditions = (await world("GET", path))["status"].get("conditions") or []
            found: JSONObject | None = next((one for one in conditions if one["type"] == "Established"), None)
            if found is not None and found["status"] == status and reason in (None, found["reason"]):
                return found
            await asyncio.sleep(0.02)
