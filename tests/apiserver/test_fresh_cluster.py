"""What is there when a server has just started, and foreign programs look for."""

from __future__ import annotations

import re

import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.client import Client

pytestmark = pytest.mark.server


async def test_it_tells_since_when_the_use_of_tokens_in_secrets_is_tracked(client: Client) -> None:
    found = await client.wait_for(
        ConfigMap, "kube-apiserver-legacy-service-account-token-tracking", bool, namespace="kube-system", timeout=30
    )
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", found.data["since"])
