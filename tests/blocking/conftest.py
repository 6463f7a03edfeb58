"""A blocking client of the server under test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kubeloop.blocking import Client, Transport
from tests.servers import ServerUnderTest


@pytest.fixture
def blocking(server: ServerUnderTest, namespace: str) -> Iterator[Client]:
    """Its default namespace is the test's own."""
    with Client(Transport(server.config), namespace=namespace) as found:
        yield found
