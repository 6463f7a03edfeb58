"""A path that no object of a kind can have is reported at the call, with the path that was probably meant."""

from __future__ import annotations

import pytest

from kubeloop.api.apps.v1 import Deployment
from kubeloop.api.core.v1 import Pod
from kubeloop.cache import InformerFactory, Sorted
from kubeloop.cache.blobs.retention import warn_of_unknown
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.meta import Resource, Unstructured


@pytest.mark.parametrize(
    ("kind", "path", "message"),
    [
        pytest.param(Pod, "spec.nodName", '"spec.nodName"; did you mean "spec.nodeName"?', id="a misspelt field"),
        pytest.param(Pod, "spek.nodeName", '"spek"; did you mean "spec"?', id="a misspelt parent"),
        pytest.param(
            Pod, "spec.containers[*].imgae", '"spec.containers[*].imgae"; did you mean "spec.containers[*].image"?', id="inside a list"
        ),
        pytest.param(Pod, "spec.zzz", '"spec.zzz"; a newer server may have it', id="nothing alike"),
        pytest.param(Pod, "spec.node_name", 'did you mean "spec.nodeName"?', id="a name as Python writes it"),
    ],
)
def test_a_path_that_the_model_does_not_have_is_reported(
    caplog: pytest.LogCaptureFixture, kind: type[Resource], path: str, message: str
) -> None:
    warn_of_unknown(kind, [path], "pods")
    (record,) = caplog.records
    assert record.getMessage().startswith(f'pods: path "{path}": Pod has no field ')
    assert message in record.getMessage()


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (Pod, "spec.nodeName"),
        (Pod, "kind"),
        (Pod, "apiVersion"),
        (Pod, "metadata.managedFields"),
        (Pod, "metadata.creationTimestamp"),
        (Pod, 'metadata.annotations["example.com/x"]'),
        (Pod, "metadata.labels.anything"),
        (Pod, "spec.containers[*].resources.requests.cpu"),
        (Pod, "spec.containers[*].env[*].valueFrom.secretKeyRef.name"),
        (Pod, "status.podIPs[*].ip"),
        (Deployment, "spec.strategy.rollingUpdate.maxSurge"),
        (Deployment, "spec.selector.matchLabels.app"),
        (Deployment, "spec.template.metadata.labels.app"),
        (Unstructured.for_kind("example.com/v1", "Widget"), "spec.anything"),
    ],
)
def test_nothing_is_said_of_a_path_that_may_be(caplog: pytest.LogCaptureFixture, kind: type[Resource], path: str) -> None:
    warn_of_unknown(kind, [path], "objects")
    assert caplog.records == []


async def test_each_path_is_reported_once_for_all_its_uses(api: Client, caplog: pytest.LogCaptureFixture) -> None:
    informers = InformerFactory(api)
    for _ in range(2):
        informers.for_kind(Pod, fields=["spec.nodName"], indexes={"node": "spec.nodName"}, namespace=ALL_NAMESPACES)
        informers.for_kind(
            Pod, indexes={"phase": "status.fase", "host": Sorted("status.hostIp")}, paths=["spec.hostnam"], namespace=ALL_NAMESPACES
        )
    hints = [record.getMessage().partition(" did you mean ")[2] for record in caplog.records]
    assert sorted(hints) == ['"spec.hostname"?', '"spec.nodeName"?', '"status.hostIP"?', '"status.phase"?']
