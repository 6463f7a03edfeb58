"""Columns: many heads as a few lists, which are written and read several times faster than one head after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from kubeloop.cache.documents.compression import Codec, Packed
from kubeloop.cache.documents.head import Head, HeadReader
from kubeloop.codec.paths import EACH, parse_path


class Columns(Struct, array_like=True):
    """One entry for each object; labels and owners are places in tables, because many objects share them."""

    namespaces: list[str]
    names: list[str]
    uids: list[str]
    versions: list[str]
    generations: list[int]
    labels: list[int]
    owners: list[int]
    deletions: list[str | None]
    codecs: list[int]
    blobs: list[bytes]
    #: One list for each of the informer's paths.
    values: list[list[Any]]
    label_sets: list[bytes]
    owner_lists: list[bytes]


def columns_of(heads: Sequence[Head], reader: HeadReader, codecs: dict[Codec, int]) -> tuple[Columns, list[Codec]]:
    """``codecs`` numbers those that were met; new ones are added to it, and answered in the order of their numbers."""
    known = len(codecs)
    packed = [(each.codec, each.blob) for each in (head._packed for head in heads)]
    label_sets: dict[int, int] = {}
    owner_lists: dict[bytes, int] = {}
    columns = Columns(
        namespaces=[head.namespace for head in heads],
        names=[head.name for head in heads],
        uids=[head.uid for head in heads],
        versions=[head.resource_version for head in heads],
        generations=[head.generation for head in heads],
        # Equal sets are one mapping (``Shared``), so identity is enough.
        labels=[label_sets.setdefault(id(head.labels), len(label_sets)) for head in heads],
        owners=[owner_lists.setdefault(head._owners, len(owner_lists)) for head in heads],
        deletions=[head._deletion for head in heads],
        codecs=[codecs.setdefault(codec, len(codecs)) for codec, _ in packed],
        blobs=[blob for _, blob in packed],
        values=[[getattr(head, name) for head in heads] for name in reader.attributes.values()],
        label_sets=[],
        owner_lists=list(owner_lists),
    )
    sets = {id(head.labels): head.labels for head in heads}
    columns.label_sets = [msgspec.json.encode(dict(sets[each])) if sets[each] else b"" for each in label_sets]
    return columns, list(codecs)[known:]


def heads_of(columns: Columns, reader: HeadReader, codecs: Sequence[Codec]) -> list[Head]:
    """The heads again, sharing what is alike with those that the reader makes.

    Raises:
        ValueError: columns of different lengths, or none for one of the reader's paths. IndexError: a place that is not in its table.
    """
    shared = reader.shared
    share = shared.string
    labels = [shared.labels(Raw(each)) for each in columns.label_sets]
    owners = [shared.owners(Raw(each)) for each in columns.owner_lists]
    if len(columns.values) != len(reader.attributes):
        raise ValueError("values of other paths")
    packed = map(Packed, map(codecs.__getitem__, columns.codecs), columns.blobs)
    rows = zip(
        map(share, columns.namespaces),
        columns.names,
        columns.uids,
        columns.versions,
        columns.generations,
        map(labels.__getitem__, columns.labels),
        map(owners.__getitem__, columns.owners),
        columns.deletions,
        packed,
        *(_values(path, values, reader) for path, values in zip(reader.attributes, columns.values, strict=True)),
        strict=True,
    )
    return reader.made_of(rows)


def _values(path: str, values: list[Any], reader: HeadReader) -> list[Any]:
    """As the reader gives them: text shared, what lies at a path with ``[*]`` a tuple."""
    if EACH in parse_path(path):
        return list(map(tuple, values))
    share = reader.shared.string
    return [share(value) if type(value) is str else value for value in values]
