"""State: the objects of one list and watch as records of heads and compressed documents. A save decodes and compresses nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, BinaryIO, TypeVar

import msgspec
from msgspec import Raw, Struct

from kubeloop.cache.blobs.compression import PLAIN, Codec, CompressedObject
from kubeloop.cache.blobs.head import Head, HeadReader
from kubeloop.cache.persistence.state_file import MAGIC, CorruptStateFile, RecordReader, RecordType, RecordWriter
from kubeloop.codec.paths import EACH, parse_path


class Columns(Struct, array_like=True):
    """The objects of a state by column; labels and owners are indexes into tables, because many objects share them."""

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
    #: One list of values for each path of the informer.
    values: list[list[Any]]
    label_sets: list[bytes]
    owner_lists: list[bytes]


def columns_of(heads: Sequence[Head], reader: HeadReader, codecs: dict[Codec, int]) -> tuple[Columns, list[Codec]]:
    """Return the heads as columns, and the codecs that are new. ``codecs`` numbers the known codecs; new ones are added to it."""
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
        # Equal label sets are one mapping, so they are compared by identity.
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
    """Return the heads of columns, sharing equal values with the heads that the reader makes.

    Raises:
        ValueError: columns have different lengths, or one of the reader's paths is missing. IndexError: an index is outside its table.
    """
    shared = reader.shared
    share = shared.string
    labels = [shared.labels(Raw(each)) for each in columns.label_sets]
    owners = [shared.owners(Raw(each)) for each in columns.owner_lists]
    if len(columns.values) != len(reader.attributes):
        raise ValueError("values of other paths")
    packed = map(CompressedObject, map(codecs.__getitem__, columns.codecs), columns.blobs)
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
    """Return the values of a path as the reader makes them: shared strings, and tuples for a path with ``[*]``."""
    if EACH in parse_path(path):
        return list(map(tuple, values))
    share = reader.shared.string
    return [share(value) if type(value) is str else value for value in values]


T = TypeVar("T")

#: Number of objects in a record; other tasks run after each record, about every 2 ms.
SLICE = 1000


class Stamp(Struct, frozen=True):
    """Identifies the server, kind, selection and form of a state. A state with another stamp is stale."""

    server: str
    api_version: str
    kind: str
    namespace: str | None
    labels: str | None
    field_selector: str | None
    kept: str
    paths: tuple[str, ...]

    def differs(self, other: Stamp) -> str:
        """Return the first difference in words; "" if the stamps are equal."""
        words = {"server": "another server", "kept": "other stored parts", "paths": "other indexes or paths"}
        for name in self.__struct_fields__:
            if getattr(self, name) != getattr(other, name):
                return words.get(name, f"another {name}")
        return ""


class StateHeader(Struct, frozen=True):
    stamp: Stamp
    #: resourceVersion of the state.
    version: str
    objects: int


class _Dictionary(Struct, array_like=True):
    content: bytes | None
    expected: float


_header = msgspec.msgpack.Decoder(StateHeader).decode
_dictionary = msgspec.msgpack.Decoder(_Dictionary).decode
_columns = msgspec.msgpack.Decoder(Columns).decode
_encode = msgspec.msgpack.Encoder().encode


def write_state(header: StateHeader, heads: Iterable[Head], reader: HeadReader) -> Iterator[bytes]:
    """Yield the bytes of a state in parts. ``heads`` must not change meanwhile."""
    records = RecordWriter()
    yield MAGIC + records.record(RecordType.HEADER, _encode(header))
    known: dict[Codec, int] = {PLAIN: 0}
    rest = iter(heads)
    while batch := list(islice(rest, SLICE)):
        columns, new = columns_of(batch, reader, known)
        for codec in new:
            yield records.record(RecordType.DICTIONARY, _encode(_Dictionary(codec.content, codec.expected)))
        yield records.record(RecordType.OBJECTS, _encode(columns))
    yield records.record(RecordType.END, b"")


class StateReader:
    """Reads a state in slices. No slice may be used before ``slices`` has ended without an error.

    Raises
        CorruptStateFile: the file differs from the written one (from the constructor and ``slices``).
    """

    def __init__(self, file: BinaryIO) -> None:
        self._records = RecordReader(file)
        kind, payload = self._records.next()
        if kind is not RecordType.HEADER:
            raise CorruptStateFile("it does not begin with a header")
        self.header = _read(_header, payload)
        self.codecs: list[Codec] = [PLAIN]

    def slices(self, reader: HeadReader) -> Iterator[list[Head]]:
        count = 0
        while True:
            kind, payload = self._records.next()
            match kind:
                case RecordType.DICTIONARY:
                    dictionary = _read(_dictionary, payload)
                    try:
                        self.codecs.append(Codec.of(dictionary.content, dictionary.expected))
                    except ValueError as error:
                        raise CorruptStateFile(str(error)) from None
                case RecordType.OBJECTS:
                    heads = self._restore(reader, payload)
                    count += len(heads)
                    yield heads
                case RecordType.END:
                    self._records.at_end()
                    if count != self.header.objects:
                        raise CorruptStateFile(f"it has {count} of {self.header.objects} objects")
                    return
                case RecordType.HEADER:
                    raise CorruptStateFile("it has two headers")

    def _restore(self, reader: HeadReader, payload: bytes) -> list[Head]:
        try:
            return heads_of(_read(_columns, payload), reader, self.codecs)
        except (ValueError, IndexError) as error:
            raise CorruptStateFile(f"its columns do not fit each other: {error}") from None


def _read(decode: Callable[[bytes], T], payload: bytes) -> T:
    try:
        return decode(payload)
    except msgspec.DecodeError as error:
        raise CorruptStateFile(f"a record cannot be read: {error}") from None
