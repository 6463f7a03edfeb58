"""The stages of the tutorial do what its page says."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from examples.api_proxy_tutorial.tests.pages import PAGE_FOLDER, SECTIONS, STAGES
from tests.docs.tutorials import Reader

pytestmark = [pytest.mark.embedded, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    reader = Reader(tmp_path_factory.mktemp("tutorial"), PAGE_FOLDER)
    try:
        reader.follow(SECTIONS["Before you start"])
        yield reader
    finally:
        reader.close()


@pytest.fixture
def pods(reader: Reader) -> None:
    """The pods as each stage expects them, also if a stage before has failed."""
    reader.type("kubectl apply -f examples/api_proxy_tutorial/stage1_pass_through/pods.yaml")
    reader.type("kubectl label pod web tier-")
    reader.type("kubectl wait pods web vault --for=condition=Ready")


@pytest.mark.usefixtures("pods")
@pytest.mark.parametrize(
    "stage",
    [
        pytest.param(1, id="a proxy passes everything, and prints what kubectl sends"),
        pytest.param(2, id="a single pod is rewritten, and other ways to it are open"),
        pytest.param(3, id="a list is rewritten"),
        pytest.param(4, id="a naive watch leaves ghosts in caches"),
        pytest.param(5, id="a watch agrees with its list"),
        pytest.param(6, id="the Tables of kubectl are rewritten"),
        pytest.param(7, id="clients act as their users"),
        pytest.param(8, id="kubeloop proxy does the same by rules"),
        pytest.param(
            9,
            id="an unmodified load balancer sends its connections elsewhere",
            marks=pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.9 is an address of this machine on Linux only"),
        ),
    ],
)
def test_a_stage_prints_what_the_page_shows(reader: Reader, stage: int) -> None:
    reader.follow(STAGES[stage])
