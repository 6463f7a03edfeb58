"""client-go's lists, watches and informers through a proxy in caching mode print what they print without one.

The proxy answers in JSON where client-go prefers protobuf: lines about media types are not compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.foreign.conftest import Chapters
from tests.proxy.in_front import proxied
from tests.servers import ServerUnderTest

pytestmark = [pytest.mark.server, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def cached(server: ServerUnderTest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The kubeconfig of a proxy in caching mode."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("KUBELOOP_TEST_PROXY", "cache")
        with proxied(server.kubeconfig, tmp_path_factory.mktemp("proxy")) as kubeconfig:
            yield kubeconfig


@pytest.mark.parametrize("chapter", ["paging", "watch", "informers", "dynamic", "metadata"])
def test_a_go_program_finds_in_the_cache_what_it_finds_on_the_server(cached: Path, namespace: str, chapter: str) -> None:
    found = Chapters(ServerUnderTest(cached), namespace).differences("go", chapter)
    assert [line for line in found if not line[2:].startswith("sent application/")] == []
