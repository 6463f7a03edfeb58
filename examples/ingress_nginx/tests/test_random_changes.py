"""After random changes of a cluster NGINX answers as the documentation of Kubernetes says."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from cryptography import x509

from examples.ingress_nginx.tests.cluster_oracle import (
    REQUESTED_HOSTS,
    REQUESTED_PATHS,
    ClusterOracle,
    Expected,
    RandomCluster,
)
from examples.ingress_nginx.tests.stage import ControllerStage, controller_stage, stage_options
from kubeloop.api.networking.v1 import IngressClass
from kubeloop.meta import NotFound, Resource

LONG = os.environ.get("KUBELOOP_TEST_LONG") == "1"
CHANGES, SEEDS = (500, range(3)) if LONG else (60, range(1))
#: So many changes between two comparisons.
BATCH = 6

Requests = list[tuple[str, str, bool]]


@pytest.mark.parametrize("seed", SEEDS)
async def test_random_changes(mode: str, tmp_path: Path, seed: int) -> None:
    async with controller_stage(stage_options(mode, tmp_path / "nginx"), mode) as at:
        backends = [await at.backend(f"backend-{number}") for number in range(4)]
        oracle = ClusterOracle({at.address(backend.name): backend.name for backend in backends})
        oracle.objects = {(type(found), found.metadata.name): found for found in [await at.ingress_class()]}
        cluster = RandomCluster(seed, [*oracle.backends], backends[0].port)
        done: list[str] = []
        for number, change in enumerate(cluster.changes(CHANGES), start=1):
            done.append(await _carry_out(at, oracle, change))
            if number % BATCH == 0:
                await _compare(at, oracle, done)
        await _compare(at, oracle, done)


async def _carry_out(at: ControllerStage, oracle: ClusterOracle, change: Resource | tuple[type[Resource], str]) -> str:
    """Make a change in the cluster, and show the oracle what the API server has; return a description."""
    if isinstance(change, tuple):
        kind, name = change
        try:
            await at.client.delete(kind, name)
        except NotFound:
            return f"no {kind.__name__} {name}"
        del oracle.objects[kind, name]
        return f"delete {kind.__name__} {name}"
    if isinstance(change, IngressClass):
        # spec.controller is immutable: another controller takes over a class of this name when it was deleted.
        with contextlib.suppress(NotFound):
            await at.client.delete(IngressClass, change.metadata.name)
    await at.put(change)
    found = await at.client.get(type(change), change.metadata.name)
    oracle.objects[type(found), found.metadata.name] = found
    return f"put {type(found).__name__} {found.metadata.name}"


async def _compare(at: ControllerStage, oracle: ClusterOracle, done: list[str]) -> None:
    requests = [(host, path, https) for host in REQUESTED_HOSTS for path in REQUESTED_PATHS for https in (False, True)]
    differences: dict[tuple[str, str, bool], str] = {}

    async def all_equal() -> bool:
        for host, path, https in requests:
            expected = oracle.expect(host, path, https=https)
            answer = await at.get(host, path, https=https, tls=at.any_certificate if https else None)
            backend = answer.seen["backend"] if answer.status == 200 else ""
            if answer.status != expected.status or (backend and backend not in expected.backends):
                differences.clear()
                differences[host, path, https] = f"{answer.status} {backend}, expected {_shown(expected)}"
                return False
        for host in REQUESTED_HOSTS:
            data = oracle.certificate(host)
            presented = await at.certificate(host)
            wanted = presented == x509.load_pem_x509_certificate(data) if data else "Fake" in presented.subject.rfc4514_string()
            if not wanted:
                differences.clear()
                subject = presented.subject.rfc4514_string()
                differences[host, "", True] = f"certificate {subject}, expected that of {'its Secret' if data else 'the controller'}"
                return False
        return True

    try:
        await at.until(all_equal)
    except AssertionError as error:
        text = "\n".join(f"{key}: {found}" for key, found in differences.items())
        raise AssertionError(f"{text}\nafter {len(done)} changes, the last ones: {done[-BATCH:]}\n{error}") from None


def _shown(expected: Expected) -> str:
    return f"{expected.status} {' or '.join(sorted(expected.backends))}"
