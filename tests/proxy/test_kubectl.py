"""kubectl behind a proxy that hides and changes objects: what a person types to look around, and to change things."""

from __future__ import annotations

import asyncio
import json
import re

import pytest

from kubeloop.types import JSONObject
from tests.proxy.conftest import ADMIN, StartProxy, pod_of
from tests.proxy.rules.rule_texts import rule

pytestmark = pytest.mark.usefixtures("shop")

HIDE_BACK = rule(match=[{"labelSelector": "tier=back"}], name="hide-back")
RENOTE = rule(
    {"set": {"metadata.annotations.note": "changed", "spec.containers[0].image": "shown"}}, name="renote", match=[{"resources": ["pods"]}]
)


def with_policy(policy: str) -> JSONObject:
    return RENOTE | {"spec": RENOTE["spec"] | {"writes": policy}}


async def test_get_in_every_output_shows_what_the_rules_leave(start_proxy: StartProxy) -> None:
    async with start_proxy(HIDE_BACK, RENOTE) as proxied:
        kubectl = proxied.kubectl()
        table, wide, names, found, tree, described, everything = await asyncio.gather(
            kubectl("get", "pods", "-n", "shop", "--no-headers"),
            kubectl("get", "deployments", "-n", "shop", "-o", "wide"),
            kubectl("get", "pods,deployments", "-n", "shop", "-o", "name"),
            kubectl("get", "pods", "-n", "shop", "-o", "json"),
            kubectl("get", "pod", "front-0", "-n", "shop", "-o", "yaml"),
            kubectl("describe", "pods", "-n", "shop"),
            kubectl("get", "pods", "-A"),
        )
        assert [line.split()[0] for line in table.splitlines()] == ["front-0", "front-1"]
        assert [re.split(r"\s{2,}", line)[0] for line in wide.splitlines()] == ["NAME", "web"]
        assert names.split() == ["pod/front-0", "pod/front-1", "deployment.apps/web"]
        assert [item["spec"]["containers"][0]["image"] for item in json.loads(found)["items"]] == ["shown", "shown"]
        assert "image: shown" in tree
        assert "nginx" not in tree + described
        assert "back" not in table + wide + names + found + tree + described + everything


async def test_wide_cells_are_computed_from_what_the_client_sees(start_proxy: StartProxy) -> None:
    image = rule({"set": {"spec.template.spec.containers[0].image": "shown"}}, name="image", match=[{"resources": ["deployments"]}])
    async with start_proxy(image) as proxied:
        wide = await proxied.kubectl()("get", "deployments", "-n", "shop", "-o", "wide")
        assert [re.split(r"\s{2,}", line)[6] for line in wide.splitlines()] == ["IMAGES", "shown", "shown"]


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        pytest.param(("-l", "tier=front"), ["front-0", "front-1"], id="a label that no rule changes"),
        pytest.param(("-l", "tier=back"), [], id="the label of hidden ones"),
        pytest.param(("-l", "seen=yes"), ["front-0", "front-1"], id="a label that a rule adds"),
        pytest.param(("-l", "!seen"), [], id="the absence of a label that a rule adds"),
        pytest.param(("--field-selector", "metadata.name=front-1"), ["front-1"], id="a name"),
        pytest.param(("--field-selector", "metadata.name=back-0"), [], id="the name of a hidden one"),
        pytest.param(("--field-selector", "spec.nodeName=shown"), ["front-0", "front-1"], id="a field that a rule sets"),
        pytest.param(("--field-selector", "spec.nodeName="), [], id="the original of such a field"),
        pytest.param(("--chunk-size", "1"), ["front-0", "front-1"], id="pages, of which one is empty"),
    ],
)
async def test_selectors_and_pages(start_proxy: StartProxy, arguments: tuple[str, ...], names: list[str]) -> None:
    label = rule({"set": {"metadata.labels.seen": "yes", "spec.nodeName": "shown"}}, name="label", match=[{"resources": ["pods"]}])
    async with start_proxy(HIDE_BACK, label) as proxied:
        found = await proxied.kubectl()("get", "pods", "-n", "shop", "-o", "name", *arguments)
        assert found.split() == [f"pod/{name}" for name in names]


async def test_watch_shows_how_objects_appear_and_disappear(start_proxy: StartProxy) -> None:
    async with start_proxy(HIDE_BACK) as proxied:
        direct = await proxied.direct()
        for output in ((), ("-o", "jsonpath={.type} {.object.metadata.name}{'\\n'}")):
            process = await proxied.kubectl().start("get", "pods", "-n", "shop", "-w", "--output-watch-events", *output)
            assert process.stdout is not None
            lines: list[list[str]] = []

            async def expect(*words: str, process: asyncio.subprocess.Process = process, lines: list[list[str]] = lines) -> None:
                assert process.stdout is not None
                async with asyncio.timeout(20):
                    while tuple(line := (await process.stdout.readline()).decode().split())[:2] != words:
                        assert line
                        lines.append(line)

            await expect("ADDED", "front-1")
            path = "/api/v1/namespaces/shop/pods"
            await direct(
                "PATCH", f"{path}/front-0", {"metadata": {"labels": {"tier": "back"}}}, Content_Type="application/merge-patch+json"
            )
            await expect("DELETED", "front-0")
            await direct(
                "PATCH", f"{path}/front-0", {"metadata": {"labels": {"tier": "front"}}}, Content_Type="application/merge-patch+json"
            )
            await expect("ADDED", "front-0")
            process.terminate()
            await process.communicate()
            assert not any("back-0" in line for line in lines)


async def test_hidden_objects_are_missing_to_every_command(start_proxy: StartProxy) -> None:
    async with start_proxy(HIDE_BACK) as proxied:
        kubectl = proxied.kubectl()
        commands = [
            ("get", "pod"),
            ("delete", "pod"),
            ("label", "pod", "a=b"),
            ("annotate", "pod", "a=b"),
            ("logs",),
            ("exec", "--", "true"),
            ("port-forward", "1234"),
            ("edit", "pod"),
        ]
        for command in commands:
            results = []
            for name in ("back-0", "none-0"):
                at = 2 if command[0] in ("get", "delete", "label", "annotate", "edit") else 1
                result = await kubectl.run("-n", "shop", *command[:at], name, *command[at:])
                results.append((result.code, result.out, result.err.replace(name, "NAME")))
            assert results[0] == results[1], command
            assert "not found" in results[0][2]
        result = await kubectl.run("-n", "shop", "scale", "deployment/db", "--replicas=2")
        assert "NotFound" in result.err or "not found" in result.err
        direct = await proxied.direct()
        assert (await direct("GET", "/api/v1/namespaces/shop/pods/back-0")).status == 200


async def test_deny_refuses_writes_of_changed_objects_and_says_which_rule(start_proxy: StartProxy) -> None:
    async with start_proxy(with_policy("Deny")) as proxied:
        kubectl = proxied.kubectl()
        for command in (("label", "pod", "front-0", "a=b"), ("delete", "pod", "front-0"), ("set", "image", "pod/front-0", "main=busybox")):
            result = await kubectl.run("-n", "shop", *command)
            assert (result.code, "is forbidden: the proxy's rule renote denies" in result.err) == (1, True), result
        assert "labeled" in await kubectl("-n", "shop", "label", "deployment", "web", "a=b")


async def test_pass_lets_writes_through(start_proxy: StartProxy) -> None:
    async with start_proxy(with_policy("Pass")) as proxied:
        kubectl, direct = proxied.kubectl(), await proxied.direct()
        assert "labeled" in await kubectl("-n", "shop", "label", "pod", "front-0", "a=b")
        found = (await direct("GET", "/api/v1/namespaces/shop/pods/front-0")).tree
        assert (found["metadata"]["labels"]["a"], found["metadata"]["annotations"]["note"]) == ("b", "original")
        assert "deleted" in await kubectl("-n", "shop", "delete", "pod", "front-0", "--now")


async def test_reverse_stores_what_the_client_changed_only(start_proxy: StartProxy) -> None:
    async with start_proxy(with_policy("Reverse")) as proxied:
        kubectl, direct = proxied.kubectl(), await proxied.direct()
        seen = json.loads(await kubectl("-n", "shop", "get", "pod", "front-0", "-o", "json"))
        assert seen["metadata"]["annotations"]["note"] == "changed"
        seen["metadata"]["labels"]["a"] = "b"
        assert "replaced" in await kubectl("-n", "shop", "replace", "-f", "-", stdin=json.dumps(seen))
        found = (await direct("GET", "/api/v1/namespaces/shop/pods/front-0")).tree
        assert (found["metadata"]["labels"]["a"], found["metadata"]["annotations"]["note"]) == ("b", "original")
        assert found["spec"]["containers"][0]["image"] == "nginx"
        seen = json.loads(await kubectl("-n", "shop", "get", "pod", "front-0", "-o", "json"))
        seen["metadata"]["annotations"]["note"] = "mine"
        result = await kubectl.run("-n", "shop", "replace", "-f", "-", stdin=json.dumps(seen))
        assert result.code == 1
        assert "metadata.annotations.note: Forbidden: the proxy's rule renote changes this field for clients" in result.err


async def test_creations_that_a_rule_would_touch_are_denied(start_proxy: StartProxy) -> None:
    async with start_proxy(HIDE_BACK) as proxied:
        kubectl = proxied.kubectl()
        for command in (("create",), ("apply",), ("apply", "--server-side")):
            body = json.dumps({"apiVersion": "v1", "kind": "Pod"} | pod_of("new", "back"))
            result = await kubectl.run("-n", "shop", *command, "-f", "-", stdin=body)
            assert (result.code, "the proxy's rule hide-back denies" in result.err) == (1, True), result
            name = "-".join(("new", *command)).replace("--", "")
            body = json.dumps({"apiVersion": "v1", "kind": "Pod"} | pod_of(name))
            await kubectl("-n", "shop", *command, "-f", "-", stdin=body)


async def test_discovery_and_schemas_pass(start_proxy: StartProxy) -> None:
    async with start_proxy(HIDE_BACK) as proxied:
        kubectl = proxied.kubectl(ADMIN)
        resources, explained, version, allowed, health = await asyncio.gather(
            kubectl("api-resources"),
            kubectl("explain", "pod.spec"),
            kubectl("version"),
            kubectl("auth", "can-i", "--list"),
            kubectl("get", "--raw", "/readyz"),
        )
        assert "deployments" in resources
        assert "nodeName" in explained
        assert "Server Version: v1.36" in version
        assert "*.*" in allowed
        assert health == "ok"
