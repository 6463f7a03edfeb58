"""Python callables of rules for the tests of the proxy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeloop.types import JSONObject


async def hide_back(tree: JSONObject, request: Mapping[str, Any]) -> JSONObject | None:
    """Hide pods with the label tier=back."""
    del request
    return None if tree["metadata"].get("labels", {}).get("tier") == "back" else tree
