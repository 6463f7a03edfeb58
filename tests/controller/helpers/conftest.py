"""The kinds of these tests on the server under test."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import pytest

from kubeloop.api.apiextensions.v1 import CustomResourceDefinition
from kubeloop.client import Client
from kubeloop.codegen.crd import definitions_of
from kubeloop.meta import NotFound, Unstructured
from tests.controller.helpers.kinds import CASES, MANAGER
from tests.servers import ServerUnderTest


@pytest.fixture(scope="module")
def installed(server: ServerUnderTest) -> Iterator[None]:
    """The server serves the kinds."""
    definitions = definitions_of([case.cls for case in CASES])

    async def install() -> None:
        async with Client.from_config(server.kubeconfig) as client:
            for definition in definitions:
                await client.apply(Unstructured.from_dict(definition.document), field_manager=MANAGER, force=True)
            for definition in definitions:
                await client.wait_ready(CustomResourceDefinition, definition.name, timeout=30)

    async def remove() -> None:
        async with Client.from_config(server.kubeconfig) as client:
            for definition in definitions:
                with suppress(NotFound):
                    await client.delete(CustomResourceDefinition, definition.name)

    asyncio.run(install())
    yield
    asyncio.run(remove())
