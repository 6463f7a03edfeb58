"""The stages of the tutorial whose daemons are processes do what its page says."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from examples.bitcoin_tutorial.tests.pages import STAGES, reader_of
from tests.docs.tutorials import Reader

pytestmark = [pytest.mark.embedded, pytest.mark.skipif(sys.platform != "linux", reason="process pods run on Linux")]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    with reader_of("Real processes", tmp_path_factory.mktemp("tutorial")) as reader:
        yield reader


@pytest.fixture
def no_network(reader: Reader) -> Iterator[None]:
    """No network is left, also if a stage has failed."""
    yield
    reader.type("kubectl delete bitcoinnetworks --all")
    reader.type("kubectl get statefulsets,pods", "No resources found in default namespace.")


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize(
    "stage",
    [
        pytest.param(6, id="each ready daemon lists each other one"),
        pytest.param(7, id="events say what happens, and daemons have the credentials of the Secret"),
        pytest.param(9, id="the operator runs as a pod, with its role and not without"),
    ],
)
def test_a_stage_prints_what_the_page_shows(reader: Reader, stage: int) -> None:
    reader.follow(STAGES[stage])
