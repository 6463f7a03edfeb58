"""What a version's entry in a CustomResourceDefinition says beside its schema, as source of a ``declare.CrdVersion``."""

from __future__ import annotations

from typing import Any, Final

from kubeloop.codegen.typed.literals import call, literal

JSONObject = dict[str, Any]

_COLUMN: Final = {"description": "description", "format": "format", "priority": "priority"}
#: Written by those who apply a manifest, not by who wrote it.
_NOT_OURS: Final = ("kubectl.kubernetes.io/last-applied-configuration",)


def crd_version(version: JSONObject) -> str:
    """Source; empty where what holds by itself is all that is said. ``version["crd"]`` is the whole definition."""
    crd: JSONObject = version["crd"]
    spec = crd["spec"]
    said: list[str] = []
    columns = [_column(column) for column in version.get("additionalPrinterColumns") or ()]
    if columns:
        said.append(f"columns=({', '.join(columns)},)")
    subresources = version.get("subresources") or {}
    if subresources.get("scale"):
        said.append(f"scale={_scale(subresources['scale'])}")
    has_status = subresources.get("status") is not None
    properties = version["schema"]["openAPIV3Schema"].get("properties") or {}
    if has_status != ("status" in properties):
        said.append(f"status={has_status}")
    if not version.get("served", False):
        said.append("served=False")
    if len(spec["versions"]) > 1 and version.get("storage"):
        said.append("storage=True")
    if version.get("deprecated"):
        said.append("deprecated=True")
    if version.get("deprecationWarning"):
        said.append(f"deprecation_warning={literal(version['deprecationWarning'])}")
    fields = [literal(field["jsonPath"]) for field in version.get("selectableFields") or ()]
    if fields:
        said.append(f"selectable_fields=({', '.join(fields)},)")
    if version.get("storage"):
        said += _whole(crd)
    return f"declare.CrdVersion({', '.join(said)})" if said else ""


def _whole(crd: JSONObject) -> list[str]:
    spec, metadata = crd["spec"], crd["metadata"]
    said: list[str] = []
    kind = spec["names"]["kind"]
    if spec["names"].get("listKind", f"{kind}List") != f"{kind}List":
        said.append(f"list_kind={literal(spec['names']['listKind'])}")
    conversion = spec.get("conversion") or {}
    if conversion.get("strategy", "None") != "None":
        said.append(f"conversion={literal(conversion)}")
    for key in ("labels", "annotations"):
        kept = {name: value for name, value in (metadata.get(key) or {}).items() if name not in _NOT_OURS}
        if kept:
            said.append(f"{key}={literal(kept)}")
    return said


def _column(column: JSONObject) -> str:
    named = {name: column[wire] for wire, name in _COLUMN.items() if column.get(wire)}
    type_ = [] if column["type"] == "string" else [literal(column["type"])]
    return call("declare.Column", literal(column["name"]), literal(column["jsonPath"]), *type_, **named)


def _scale(scale: JSONObject) -> str:
    return call(
        "declare.Scale",
        literal(scale["specReplicasPath"]),
        literal(scale["statusReplicasPath"]),
        *([literal(scale["labelSelectorPath"])] if scale.get("labelSelectorPath") else []),
    )
