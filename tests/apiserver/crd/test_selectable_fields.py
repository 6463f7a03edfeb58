"""Selectable fields of one version, where the versions share their schema."""

from __future__ import annotations

import pytest

from tests.kubectl.conftest import kubectl as kubectl
from tests.kubectl.conftest import kubectl_home as kubectl_home
from tests.kubectl.runner import Kubectl

pytestmark = [pytest.mark.server, pytest.mark.timeout(180)]

CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: sels.selectable.example.com}
spec:
  group: selectable.example.com
  names: {kind: Sel, plural: sels}
  scope: Namespaced
  versions:
    - name: v1
      served: true
      storage: true
      selectableFields: [{jsonPath: .a}]
      schema: &s {openAPIV3Schema: {type: object, properties: {a: {type: string}}}}
    - {name: v2, served: true, storage: false, schema: *s}
"""


def test_fields_of_one_version_need_a_schema_of_that_version(kubectl: Kubectl) -> None:
    said = kubectl.refused("create", "--dry-run=server", "-f", "-", stdin=CRD)
    path, fault = "spec.versions[0].selectableFields", "may only be set when `version.schema.openAPIV3Schema` is not included"
    assert f'{path}: Invalid value: "": {fault}' in said
    both = CRD.replace("schema: *s", "selectableFields: [{jsonPath: .a}], schema: *s")
    assert "created" in kubectl("create", "--dry-run=server", "-f", "-", stdin=both)
