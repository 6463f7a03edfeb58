"""The stages of the tutorial that need no processes do what its page says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from examples.bitcoin_tutorial.tests.pages import STAGES, reader_of
from tests.docs.tutorials import Reader

pytestmark = pytest.mark.embedded


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    with reader_of("Before you start", tmp_path_factory.mktemp("tutorial")) as reader:
        yield reader


@pytest.fixture
def definition(reader: Reader) -> Iterator[None]:
    """The state that stage 1 leaves, also if its test did not run or a stage has failed."""
    reader.type("kubeloop generate crd examples.bitcoin_tutorial.stage1_types | kubectl apply -f -")
    reader.type("kubectl wait --for=condition=Established crd/bitcoinnetworks.bitcoincontroller.christianb93.github.com")
    yield
    reader.type("kubectl delete bitcoinnetworks --all")
    reader.type("kubectl get statefulsets,deployments,pods", "No resources found in default namespace.")


def test_the_definition_is_served_and_refuses_wrong_networks(reader: Reader) -> None:
    reader.follow(STAGES[1])


@pytest.mark.usefixtures("definition")
@pytest.mark.parametrize(
    "stage",
    [
        pytest.param(2, id="an informer prints each change, and workers print the keys"),
        pytest.param(3, id="a controller creates and restores a Deployment"),
        pytest.param(4, id="a network has a Service and a StatefulSet"),
        pytest.param(5, id="the status shows the daemons"),
    ],
)
def test_a_stage_prints_what_the_page_shows(reader: Reader, stage: int) -> None:
    reader.follow(STAGES[stage])


def test_the_tests_of_the_tutorial_pass_as_the_page_shows(reader: Reader) -> None:
    reader.follow(STAGES[8])
