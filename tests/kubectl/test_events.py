"""What a person sees of recorded events: ``kubectl events``, ``kubectl get events`` and ``kubectl describe``."""

from __future__ import annotations

import re

import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.client import Client
from kubeloop.controller import EventRecorder
from kubeloop.controller.events import CoreEvents, EventSink, SeriesEvents
from kubeloop.meta import ObjectMeta
from tests.kubectl.runner import Kubectl

pytestmark = pytest.mark.server


@pytest.mark.parametrize("sink", [CoreEvents(), SeriesEvents()], ids=["core/v1", "events.k8s.io/v1"])
async def test_kubectl_shows_an_event_with_its_count_and_reporter(kubectl: Kubectl, client: Client, sink: EventSink) -> None:
    obj = await client.create(ConfigMap(metadata=ObjectMeta(name="c")))
    async with EventRecorder(client, "tester", sinks=[sink], flush=60) as recorder:
        for _ in range(3):
            recorder.normal(obj, "Synced", "all is well")
        recorder.warning(obj, "Failed", "it is broken", action="Repairing")
    listed = kubectl("events", "--for", "configmap/c").splitlines()
    assert any(re.match(r"\S+ \(x3 over \S+\)\s+Normal\s+Synced\s+ConfigMap/c\s+all is well$", line) for line in listed), listed
    assert any(re.match(r"\S+\s+Warning\s+Failed\s+ConfigMap/c\s+it is broken$", line) for line in listed), listed
    assert len([line for line in kubectl("events", "--types=Warning").splitlines() if "Failed" in line]) == 1
    got = kubectl("get", "events", "--field-selector", "involvedObject.name=c,reason=Synced")
    assert re.search(r"Normal\s+Synced\s+configmap/c\s+all is well", got), got
    described = kubectl("describe", "configmap", "c")
    assert re.search(r"Normal\s+Synced\s+\S+ \(x3 over \S+\)\s+tester\s+all is well", described), described
    assert re.search(r"Warning\s+Failed\s+\S+\s+tester\s+it is broken", described), described
