"""Stores the CustomResourceDefinitions of the Gateway API for gateway/types.py and its test; README.md shows the commands."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

from kubeloop.codec.yaml import read_yaml

KINDS = ("gatewayclasses", "gateways", "grpcroutes", "httproutes", "referencegrants")


def stored(definition: dict[str, Any]) -> dict[str, Any]:
    """Return a definition with its version v1 only, without descriptions and status."""
    definition.pop("status", None)
    definition["spec"]["versions"] = [version for version in definition["spec"]["versions"] if version["name"] == "v1"]
    # ReferenceGrants are stored as v1beta1; a definition without that version stores its only one.
    definition["spec"]["versions"][0]["storage"] = True
    result: dict[str, Any] = _without_descriptions(definition)
    return result


def _without_descriptions(value: Any) -> Any:
    if isinstance(value, dict):
        # A property may have the name "description"; its schema is a mapping.
        return {key: _without_descriptions(part) for key, part in value.items() if key != "description" or not isinstance(part, str)}
    return [_without_descriptions(part) for part in value] if isinstance(value, list) else value


def main(folder: Path) -> None:
    """Read the definitions of a folder and write both files."""
    files = [folder / f"gateway.networking.k8s.io_{kind}.yaml" for kind in KINDS]
    items = [stored(read_yaml(file.read_text())[0]) for file in files]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, separators=(",", ":"), sort_keys=True)
    Path(__file__).with_name("gateway-crds.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    Path("crds.json").write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
