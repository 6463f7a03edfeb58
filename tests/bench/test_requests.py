"""The benchmark of requests: its verdicts, and kubeloop's program for the start against a server. No time is asserted."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from bench import requests
from bench.prepare import HERE
from bench.requests import GO_JSON, KUBELOOP, LIGHTKUBE, Sizes, judge
from kubeloop import Client
from kubeloop.api.core.v1 import Container, Pod, PodSpec
from kubeloop.meta import ObjectMeta
from tests.servers import ServerUnderTest

OURS = {"start": 100e3, "list": 40, "unstructured": 50, "metadata": 21, "get": 130, "update": 131, "watch": 10, "stream": 99, "watches": 51}
THEIRS = {"start": 90e3, "list": 100, "get": 100, "update": 100, "watch": 11}


def test_each_figure_is_judged_against_its_peer_or_by_itself() -> None:
    found = {target.what: target.met for target in judge({KUBELOOP: OURS, LIGHTKUBE: THEIRS})}
    assert found == {
        "process start to the first typed Pod, TLS, CPU": False,
        "list of pods, typed, per pod": True,
        "list of pods, Unstructured, per pod": True,
        "list of pods, metadata alone, per pod": False,
        "get of a typed pod": True,
        "update of a typed pod": False,
        "watch event, typed": None,
        "list as a stream: highest resident memory": True,
        "one of many watches, beyond its socket": False,
    }


def test_a_watch_is_judged_against_each_of_its_peers() -> None:
    events = [(target.against, target.met) for target in judge({KUBELOOP: {"watch": 10}, LIGHTKUBE: THEIRS, GO_JSON: {"watch": 9}})]
    assert events == [("1 x 11 of lightkube", True), ("1 x 9 of client-go JSON", False)]


def test_what_kubeloop_did_not_run_is_no_target() -> None:
    assert list(judge({LIGHTKUBE: THEIRS})) == []


def test_a_smoke_run_is_smaller_and_has_one_round() -> None:
    small = Sizes().smaller(50)
    assert (small.pods, small.rounds, small.starts) == (200, 1, 1)
    assert Sizes().smaller(1) == Sizes()


def test_every_client_has_a_program_for_each_part() -> None:
    assert requests.REQUESTS.keys() == requests.STARTS.keys()
    assert set(requests.FAST) | set(requests.SLOW) == requests.REQUESTS.keys()
    for name in requests.SLOW:
        assert (HERE.parent / requests.REQUESTS[name].command[2].replace(".", "/")).with_suffix(".py").exists()
        assert Path(requests.STARTS[name].command[1]).exists()


@pytest.mark.embedded
async def test_the_program_of_the_start_gets_its_pod(server: ServerUnderTest, client: Client, namespace: str) -> None:
    await client.create(Pod(metadata=ObjectMeta(name="a", namespace=namespace), spec=PodSpec(containers=[Container(name="c", image="i")])))
    program = str(HERE / "peers" / "starts" / "start_kubeloop.py")
    environment = os.environ | {"KUBECONFIG": str(server.kubeconfig)}
    process = await asyncio.create_subprocess_exec(sys.executable, program, namespace, "a", env=environment)
    assert await process.wait() == 0
