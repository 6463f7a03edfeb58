"""How plug-ins refuse. Source: k8s.io/apiserver pkg/admission/errors.go."""

from __future__ import annotations

from collections.abc import Iterable

from kubeloop.apiserver.admission.chain import Attributes
from kubeloop.apiserver.request import api_errors
from kubeloop.meta.errors import ApiError


def refused(attributes: Attributes, why: str, *, unnamed: bool = False) -> ApiError:
    """403, naming what was to be written. ``unnamed``: said before upstream has made a name of generateName."""
    name = attributes.name
    if not name:
        metadata = (attributes.obj or {}).get("metadata") or {}
        order = ("generateName", "name") if unnamed else ("name", "generateName")
        name = next((metadata[one] for one in order if metadata.get(one)), "Unknown")
    return api_errors.forbidden(attributes.resource.gvr.group_resource, name, why)


def aggregated(messages: Iterable[str]) -> str:
    """Several messages as one, each once."""
    texts = list(dict.fromkeys(messages))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
