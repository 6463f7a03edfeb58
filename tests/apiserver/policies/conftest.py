"""Policies of a test on the server under test: bound, waited for, and taken away again."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pytest

from kubeloop.meta.errors import ApiError, NotFound
from kubeloop.transport import Transport
from kubeloop.types import JSONObject
from tests.apiserver.webhooks.conftest import ADMISSION, CONFIGMAPS, World
from tests.apiserver.webhooks.scripted import scripted_hook
from tests.servers import ServerUnderTest

_NUMBERS = itertools.count(1)
_PATIENCE = 30.0


def rule(resource: str, *operations: str, group: str = "", version: str = "v1") -> JSONObject:
    return {"apiGroups": [group], "apiVersions": [version], "resources": [resource], "operations": list(operations or ("*",))}


def apply(expression: str) -> JSONObject:
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}


def patch(expression: str) -> JSONObject:
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}


@dataclass
class Bound:
    """A policy that is bound: its own name, and its binding's."""

    policy: str
    binding: str

    def denied(self, why: str) -> str:
        return f"ValidatingAdmissionPolicy '{self.policy}' with binding '{self.binding}' denied request: {why}"


class PolicyWorld(World):
    """The same with policies, which concern the test's own namespace.

    ``rules`` and ``labels`` of a ``spec`` go into the match constraints. Select objects without a namespace by labels.
    """

    @asynccontextmanager
    async def validating(self, *validations: JSONObject, actions: tuple[str, ...] = ("Deny",), **spec: Any) -> AsyncIterator[Bound]:
        async with self._bound("Validating", {"validations": list(validations), **spec}, {"validationActions": list(actions)}) as bound:
            yield bound

    @asynccontextmanager
    async def mutating(self, *mutations: JSONObject, **spec: Any) -> AsyncIterator[Bound]:
        async with self._bound("Mutating", {"reinvocationPolicy": "Never", "mutations": list(mutations), **spec}, {}) as bound:
            yield bound

    @asynccontextmanager
    async def _bound(self, kind: str, spec: JSONObject, binding: JSONObject) -> AsyncIterator[Bound]:
        """With a second policy that shows when both are in force."""
        names = [f"test-{os.getpid()}-{next(_NUMBERS)}" for _ in range(2)]
        only = [{**rule("secrets", "CREATE"), "resourceNames": [names[1]]}]
        if kind == "Validating":
            canary: JSONObject = {"rules": only, "validations": [{"expression": "false"}]}
        else:
            canary = {"rules": only, "mutations": [apply("Object{type: 'canary'}")], "reinvocationPolicy": "Never"}
        async with AsyncExitStack() as stack:
            for name, one in zip(names, (spec, canary), strict=True):
                await stack.enter_async_context(self._written(kind, "AdmissionPolicy", name, self._policy(one)))
            for name in names:
                await stack.enter_async_context(self._written(kind, "AdmissionPolicyBinding", name, {"policyName": name, **binding}))
            if kind == "Validating" and "Deny" not in binding["validationActions"]:
                await self("PATCH", self._path(kind, "AdmissionPolicyBinding", names[1]), {"spec": {"validationActions": ["Deny"]}}, _MERGE)
            await self._until_in_force(kind, names[1])
            yield Bound(names[0], names[0])

    def _policy(self, spec: JSONObject) -> JSONObject:
        spec = dict(spec)
        selector = {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}}
        labels, rules = spec.pop("labels", None), spec.pop("rules", [CONFIGMAPS])
        constraints: JSONObject = {"namespaceSelector": selector, "resourceRules": rules}
        if labels:
            constraints["objectSelector"] = {"matchLabels": labels}
        if spec.get("mutations"):
            # There is nothing to mutate in a deletion.
            some = {"operations": ["CREATE", "UPDATE"]}
            constraints["resourceRules"] = [one | some if "*" in one["operations"] else one for one in rules]
        return {"matchConstraints": constraints, **spec}

    @staticmethod
    def _path(kind: str, suffix: str, name: str = "") -> str:
        plural = f"{kind}{suffix}".lower().removesuffix("y") + ("ies" if suffix.endswith("Policy") else "s")
        return f"{ADMISSION}/{plural}" + (f"/{name}" if name else "")

    @asynccontextmanager
    async def _written(self, kind: str, suffix: str, name: str, spec: JSONObject) -> AsyncIterator[None]:
        tree = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": f"{kind}{suffix}", "metadata": {"name": name}, "spec": spec}
        await self("POST", self._path(kind, suffix), tree)
        try:
            yield
        finally:
            with suppress(NotFound):
                await self("DELETE", self._path(kind, suffix, name))

    async def _until_in_force(self, kind: str, name: str) -> None:
        """A kube-apiserver learns of a policy a moment after it is stored."""
        async with asyncio.timeout(_PATIENCE):
            while True:
                try:
                    made = await self("POST", self.path("secrets"), {"metadata": {"name": name}}, dryRun="All")
                except ApiError as fault:
                    if f"ValidatingAdmissionPolicy '{name}'" in fault.status.message:
                        return
                    raise
                if kind == "Mutating" and made["type"] == "canary":
                    return
                await asyncio.sleep(0.05)


_MERGE = "application/merge-patch+json"


@pytest.fixture
async def world(server: ServerUnderTest, namespace: str) -> AsyncIterator[PolicyWorld]:
    async with Transport(server.config) as transport, scripted_hook() as hook:
        yield PolicyWorld(transport, hook, namespace)
