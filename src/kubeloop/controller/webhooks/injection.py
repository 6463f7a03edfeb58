"""Which patches bring a configuration to the right CA bundle, or a definition to the right conversion; pure.

Source: admissionregistration.k8s.io/v1 WebhookClientConfig, apiextensions.k8s.io/v1 CustomResourceConversion.
"""

from __future__ import annotations

import base64
from typing import Any

from kubeloop.merge.json_diff import json_diff
from kubeloop.types import JSONObject

Operation = dict[str, Any]


def bundle_patch(configuration: JSONObject, bundle: bytes) -> list[Operation]:
    """For an admission configuration: every webhook trusts ``bundle`` (PEM). Bound to the names at those places."""
    wanted = base64.b64encode(bundle).decode()
    patch: list[Operation] = []
    for at, webhook in enumerate(configuration.get("webhooks") or ()):
        if (webhook.get("clientConfig") or {}).get("caBundle") != wanted:
            patch.append({"op": "test", "path": f"/webhooks/{at}/name", "value": webhook.get("name")})
            patch.append({"op": "add", "path": f"/webhooks/{at}/clientConfig/caBundle", "value": wanted})
    return patch


def definition_bundle_patch(definition: JSONObject, bundle: bytes) -> list[Operation]:
    """For a CustomResourceDefinition: whoever converts it is trusted by ``bundle``. Empty if no webhook does."""
    conversion = (definition.get("spec") or {}).get("conversion") or {}
    client = (conversion.get("webhook") or {}).get("clientConfig")
    wanted = base64.b64encode(bundle).decode()
    if conversion.get("strategy") != "Webhook" or client is None or client.get("caBundle") == wanted:
        return []
    return [{"op": "add", "path": "/spec/conversion/webhook/clientConfig/caBundle", "value": wanted}]


def conversion_patch(definition: JSONObject, conversion: JSONObject) -> list[Operation]:
    """For a CustomResourceDefinition: it is converted as ``conversion`` says. If that has no bundle, another one stays."""
    before = (definition.get("spec") or {}).get("conversion")
    client = conversion["webhook"]["clientConfig"]
    filled = ((before or {}).get("webhook") or {}).get("clientConfig") or {}
    if "caBundle" not in client and "caBundle" in filled:
        webhook = {**conversion["webhook"], "clientConfig": {**client, "caBundle": filled["caBundle"]}}
        conversion = {**conversion, "webhook": webhook}
    if before is not None and not json_diff(before, conversion):
        return []
    return [{"op": "add", "path": "/spec/conversion", "value": conversion}]
