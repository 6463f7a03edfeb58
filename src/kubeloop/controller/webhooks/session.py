"""Temporary registration: its objects are marked, so that the program's end or its next start removes it.

Webhooks at an address of the program's machine end with the program. A configuration that remains would make every write fail.
"""

from __future__ import annotations

import base64
import json
from typing import Any, Final

from kubeloop.client import Client
from kubeloop.merge.json_patch import json_diff
from kubeloop.meta import NotFound, Unstructured
from kubeloop.types import JSONObject

# Patches that set the CA bundle of a configuration or the conversion of a definition. Pure.
#
# Source: admissionregistration.k8s.io/v1 WebhookClientConfig, apiextensions.k8s.io/v1 CustomResourceConversion.


Operation = dict[str, Any]


def bundle_patch(configuration: JSONObject, bundle: bytes) -> list[Operation]:
    """Return a JSON patch that sets the CA bundle (PEM) of every webhook of a configuration. It fails if the webhooks' names changed."""
    wanted = base64.b64encode(bundle).decode()
    patch: list[Operation] = []
    for at, webhook in enumerate(configuration.get("webhooks") or ()):
        if (webhook.get("clientConfig") or {}).get("caBundle") != wanted:
            patch.append({"op": "test", "path": f"/webhooks/{at}/name", "value": webhook.get("name")})
            patch.append({"op": "add", "path": f"/webhooks/{at}/clientConfig/caBundle", "value": wanted})
    return patch


def definition_bundle_patch(definition: JSONObject, bundle: bytes) -> list[Operation]:
    """Return the patch that sets the CA bundle of a CustomResourceDefinition's conversion webhook; empty if it has no webhook."""
    conversion = (definition.get("spec") or {}).get("conversion") or {}
    client = (conversion.get("webhook") or {}).get("clientConfig")
    wanted = base64.b64encode(bundle).decode()
    if conversion.get("strategy") != "Webhook" or client is None or client.get("caBundle") == wanted:
        return []
    return [{"op": "add", "path": "/spec/conversion/webhook/clientConfig/caBundle", "value": wanted}]


def conversion_patch(definition: JSONObject, conversion: JSONObject) -> list[Operation]:
    """Return the patch of a CustomResourceDefinition that sets its conversion. If ``conversion`` has no bundle, the present one stays."""
    before = (definition.get("spec") or {}).get("conversion")
    client = conversion["webhook"]["clientConfig"]
    filled = ((before or {}).get("webhook") or {}).get("clientConfig") or {}
    if "caBundle" not in client and "caBundle" in filled:
        webhook = {**conversion["webhook"], "clientConfig": {**client, "caBundle": filled["caBundle"]}}
        conversion = {**conversion, "webhook": webhook}
    if before is not None and not json_diff(before, conversion):
        return []
    return [{"op": "add", "path": "/spec/conversion", "value": conversion}]


#: Label on the objects of a session; its value is the name of the registration.
SESSION: Final = "kubeloop.dev/webhook-session"
#: Annotation on a definition: its conversion before the session, as JSON.
BEFORE: Final = "kubeloop.dev/conversion-before"

_CONFIGURATIONS: Final = (
    ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
    ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
)
_Definition = Unstructured.for_kind(
    "apiextensions.k8s.io/v1", "CustomResourceDefinition", plural="customresourcedefinitions", namespaced=False
)


def marked_conversion_patch(definition: JSONObject, conversion: JSONObject, name: str) -> list[Operation]:
    """Return the patch that sets the conversion of a definition for session ``name``, and records the previous one in an annotation."""
    patch = conversion_patch(definition, conversion)
    metadata = definition.get("metadata") or {}
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    if labels.get(SESSION) != name or BEFORE not in annotations:
        before = json.dumps((definition.get("spec") or {}).get("conversion") or {"strategy": "None"})
        patch.append({"op": "add", "path": "/metadata/labels", "value": {**labels, SESSION: name}})
        patch.append({"op": "add", "path": "/metadata/annotations", "value": {BEFORE: before, **annotations}})
    return patch


def restoring_patch(definition: JSONObject) -> list[Operation]:
    """Return the patch that restores a definition's conversion from before the session. It fails if the definition was changed since."""
    metadata = definition["metadata"]
    annotations = dict(metadata.get("annotations") or {})
    labels = {key: value for key, value in (metadata.get("labels") or {}).items() if key != SESSION}
    before = json.loads(annotations.pop(BEFORE, '{"strategy": "None"}'))
    return [
        {"op": "test", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]},
        {"op": "add", "path": "/spec/conversion", "value": before},
        {"op": "add", "path": "/metadata/labels", "value": labels},
        {"op": "add", "path": "/metadata/annotations", "value": annotations},
    ]


async def end_session(client: Client, name: str) -> list[str]:
    """Delete the configurations of session ``name``, and restore the conversion of its definitions. Return texts that name the changes.

    Raises:
        ApiError, TransportError: The requests failed.
    """
    done: list[str] = []
    for kind, plural in _CONFIGURATIONS:
        configurations = Unstructured.for_kind("admissionregistration.k8s.io/v1", kind, plural=plural, namespaced=False)
        for found in await client.list(configurations, label_selector={SESSION: name}):
            try:
                await client.delete(configurations, found.metadata.name)
            except NotFound:
                continue
            done.append(f"{kind} {found.metadata.name}")
    for found in await client.list(_Definition, label_selector={SESSION: name}):
        await client.patch(_Definition, found.metadata.name, restoring_patch(found.to_dict()), type="json")
        done.append(f"the conversion of {found.metadata.name}")
    return done
