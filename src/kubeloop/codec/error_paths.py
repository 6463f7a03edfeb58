"""Names the field at which decoding failed: like msgspec's error, but with the keys of maps, which msgspec leaves out (``data[...]``)."""

from __future__ import annotations

import re
from typing import Any

import msgspec

# Compiled when the first error needs them.
_STEP = r"\.(?P<name>[^.\[\]]+)|\[(?P<index>\d+)\]|\[(?P<any>\.\.\.)\]"
_PLAIN = r"[A-Za-z_$][\w$-]*"


def explain(error: Exception, decoder: msgspec.json.Decoder[Any] | None = None, tree: Any = None) -> str:
    """Reword an error of msgspec as ``spec.replicas: expected int, got str``.

    ``tree`` is the value that ``decoder`` refused; with it the keys of maps are found.
    """
    text, _, path = str(error).rpartition(" - at `$")
    if not text:
        return str(error)
    path = path.rstrip("`")
    if decoder is not None and "[...]" in path:
        path = _with_keys(decoder, tree, path)
    field = path.removeprefix(".")
    reason = text.replace("`", "")
    return f"{field}: {reason[:1].lower()}{reason[1:]}" if field else reason


def _with_keys(decoder: msgspec.json.Decoder[Any], tree: Any, path: str) -> str:
    named = ""
    at = tree
    for token in re.finditer(_STEP, path):
        if token["any"] and isinstance(at, dict):
            key = _culprit(decoder, tree, at)
            if key is None:
                return path
            named += f".{key}" if re.fullmatch(_PLAIN, key) else f'["{key}"]'
            at = at[key]
            continue
        named += token[0]
        if token["name"] and isinstance(at, dict):
            at = at.get(token["name"])
        elif token["index"] and isinstance(at, list) and int(token["index"]) < len(at):
            at = at[int(token["index"])]
        else:
            at = None
    return named


def _culprit(decoder: msgspec.json.Decoder[Any], tree: Any, holder: dict[str, Any]) -> str | None:
    """Return the first member of ``holder`` (a dict within ``tree``) that is refused when it is the only member."""
    members = dict(holder)
    try:
        for key, value in members.items():
            holder.clear()
            holder[key] = value
            try:
                decoder.decode(msgspec.json.encode(tree))
            except msgspec.ValidationError:
                return key
    finally:
        holder.clear()
        holder.update(members)
    return None
