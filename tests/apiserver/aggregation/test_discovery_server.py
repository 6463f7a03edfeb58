"""Discovery and OpenAPI of a server with others behind it. Both servers are asked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.apiserver.aggregation.conftest import API_SERVICES, Reply, World

pytestmark = pytest.mark.server

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def group_in(reply: Reply, group: str) -> dict[str, Any]:
    items = reply.body["items"]
    return next((one for one in items if one["metadata"]["name"] == group), {})


async def discovered(world: World, freshness: str) -> dict[str, Any]:
    """The group of the aggregated document, once it is as fresh as wanted."""
    group = world.extension.group

    def done(reply: Reply) -> bool:
        found = group_in(reply, group)
        return bool(found) and found["versions"][0]["freshness"] == freshness

    return group_in(await world.until("/apis", done, Accept=AGGREGATED), group)


async def test_what_the_other_server_serves_is_in_the_aggregated_document(world: World) -> None:
    await world.available()
    found = await discovered(world, "Current")
    assert found["versions"] == world.extension.aggregated()["items"][0]["versions"]


async def test_of_a_server_that_knows_lists_only_the_list_is_read(world: World) -> None:
    world.extension.legacy = True
    await world.available()
    (version,) = (await discovered(world, "Current"))["versions"]
    assert version["resources"] == [
        {
            "resource": "widgets",
            "responseKind": {"group": "", "version": "", "kind": "Widget"},
            "scope": "Namespaced",
            "singularResource": "widget",
            "verbs": ["create", "get", "list", "watch"],
            "shortNames": ["wi"],
            "subresources": [{"subresource": "status", "responseKind": {"group": "", "version": "", "kind": "Widget"}, "verbs": ["get"]}],
        }
    ]


async def test_of_a_server_that_cannot_be_reached_only_the_version_is_shown_as_stale(world: World) -> None:
    await world.register()
    found = await discovered(world, "Stale")
    assert found["versions"] == [{"version": "v1", "freshness": "Stale"}]


async def test_groups_come_in_the_order_of_their_priorities(world: World) -> None:
    await world.register(groupPriorityMinimum=17350)
    group = world.extension.group

    def known(reply: Reply) -> bool:
        return group in [one["name"] for one in reply.body["groups"]]

    listed = [one["name"] for one in (await world.until("/apis", known)).body["groups"]]
    assert listed.index("batch") < listed.index(group) < listed.index("certificates.k8s.io")
    assert listed[0] == "apiregistration.k8s.io"
    await discovered(world, "Stale")
    reply = await world("GET", "/apis", Accept=AGGREGATED)
    names = [one["metadata"]["name"] for one in reply.body["items"]]
    assert names.index("batch") < names.index(group) < names.index("certificates.k8s.io")


async def test_versions_come_in_the_order_of_their_priorities(world: World) -> None:
    group = world.extension.group
    for version, priority in (("v1", 10), ("v2", 5), ("v1beta1", 20), ("v3", 5)):
        world.extension.version = version
        await world.register(versionPriority=priority)

    def all_known(reply: Reply) -> bool:
        return reply.status == 200 and len(reply.body["versions"]) == 4

    found = (await world.until(f"/apis/{group}", all_known)).body
    assert found["kind"] == "APIGroup"
    assert found["versions"] == [{"groupVersion": f"{group}/{one}", "version": one} for one in ("v1beta1", "v1", "v3", "v2")]
    assert found["preferredVersion"] == {"groupVersion": f"{group}/v1beta1", "version": "v1beta1"}


async def test_a_group_that_is_only_said_to_be_local_is_listed_and_not_found(world: World) -> None:
    await world.register(service=None, caBundle=None)
    group = world.extension.group
    reply = await world.until(f"/apis/{group}", lambda reply: reply.status == 200)
    assert [one["version"] for one in reply.body["versions"]] == ["v1"]
    assert (await world("GET", f"/apis/{group}/v1")).text == "404 page not found\n"


async def test_openapi_version_3_leads_to_the_other_server(world: World) -> None:
    await world.available()
    key = world.extension.path[1:]
    index = await world.until("/openapi/v3", lambda reply: key in json.loads(reply.text)["paths"])
    url = json.loads(index.text)["paths"][key]["serverRelativeURL"]
    assert url == f"/openapi/v3/{key}?hash=AB"
    reply = await world("GET", url)
    assert reply.body["info"]["title"] == "extension"


async def test_openapi_version_2_has_the_other_servers_paths(world: World) -> None:
    await world.available()
    path = f"{world.extension.path}/widgets"
    found = (await world.until("/openapi/v2", lambda reply: path in reply.text)).body
    assert "/elsewhere" not in found["paths"]
    assert found["paths"][path]["get"]["responses"]["200"]["schema"] == {"$ref": "#/definitions/com.example.Widget"}
    assert found["definitions"]["com.example.Widget"]["type"] == "object"


async def test_custom_resources_have_api_services_as_long_as_they_are_served(world: World) -> None:
    group = world.extension.group
    definition = {
        "metadata": {"name": f"widgets.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": "Widget", "plural": "widgets"},
            "scope": "Namespaced",
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    }
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert (await world("POST", definitions, definition)).status == 201
    path = f"{API_SERVICES}/v1.{group}"
    found = (await world.until(path, lambda reply: reply.status == 200)).body
    assert found["metadata"]["labels"] == {"kube-aggregator.kubernetes.io/automanaged": "true"}
    assert found["spec"] == {"group": group, "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 100}
    (condition,) = found["status"]["conditions"]
    assert (condition["reason"], condition["status"]) == ("Local", "True")
    await world("DELETE", path)
    again = await world.until(path, lambda reply: reply.status == 200 and reply.body["metadata"]["uid"] != found["metadata"]["uid"])
    assert again.body["spec"] == found["spec"]
    await world("DELETE", f"{definitions}/widgets.{group}")
    await world.until(path, lambda reply: reply.status == 404)
