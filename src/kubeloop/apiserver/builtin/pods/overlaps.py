"""Files of one volume that get into each other's way. Source: pkg/api/pod/warnings.go (warningsForOverlappingVirtualPaths)."""

from __future__ import annotations

from collections.abc import Iterator

from kubeloop.apiserver.builtin.pods.options import JSONObject
from kubeloop.meta.go_quote import go_quoted

#: A path in a volume, and what puts it there.
_File = tuple[str, str]


def overlapping_files(volumes: list[JSONObject]) -> Iterator[str]:
    for volume in volumes:
        name = go_quoted(volume.get("name", ""))
        for kind, title in (("configMap", "name"), ("secret", "secretName"), ("downwardAPI", "")):
            found = volume.get(kind) or {}
            what = _titled(kind, found.get(title, "")) if title else "DownwardAPI"
            yield from _told(name, what, [(item.get("path", ""), "") for item in found.get("items") or ()])
        yield from _projected(name, (volume.get("projected") or {}).get("sources") or [])


def _projected(name: str, sources: list[JSONObject]) -> Iterator[str]:
    files: list[_File] = []
    for source in sources:
        if not any(part is not None for part in source.values()):
            yield f"volume {name} (Projected) has no sources provided"
        files += _files(source)
    yield from _told(name, "Projected", files)


def _files(source: JSONObject) -> list[_File]:
    for kind in ("configMap", "secret"):
        found = source.get(kind) or {}
        if found.get("items") is not None:
            return [(item.get("path", ""), _titled(kind, found.get("name", ""))) for item in found["items"]]
    if (items := (source.get("downwardAPI") or {}).get("items")) is not None:
        return [(item.get("path", ""), "DownwardAPI") for item in items]
    token = source.get("serviceAccountToken")
    return [] if token is None else [(token.get("path", ""), "ServiceAccountToken")]


def _titled(kind: str, name: str) -> str:
    return f"{kind[0].upper()}{kind[1:]} {go_quoted(name)}"


def _told(name: str, what: str, files: list[_File]) -> Iterator[str]:
    before: list[_File] = []
    for path, source in files:
        one = path.rstrip("/"), source
        for other in before:
            if one[0] and other[0] and _meet(one[0], other[0]):
                yield f"volume {name} ({what}): overlapping paths: {_shown(one)} with {_shown(other)}"
        before.append(one)


def _meet(one: str, other: str) -> bool:
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def _shown(file: _File) -> str:
    path, source = file
    return f"{go_quoted(path)} ({source})" if source else go_quoted(path)
