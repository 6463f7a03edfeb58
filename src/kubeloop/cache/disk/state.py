"""State: one feed's objects as records, heads and packed documents as they are: nothing is decoded or compressed on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import BinaryIO, TypeVar

import msgspec
from msgspec import Struct

from kubeloop.cache.disk.columns import Columns, columns_of, heads_of
from kubeloop.cache.disk.records import MAGIC, Damaged, Record, RecordReader, RecordWriter
from kubeloop.cache.documents.compression import PLAIN, Codec
from kubeloop.cache.documents.head import Head, HeadReader

T = TypeVar("T")

#: Objects in a record, and so between two turns of other tasks: 2 ms or so.
SLICE = 1000


class Stamp(Struct, frozen=True):
    """What a state belongs to. One that was written for another stamp is stale."""

    server: str
    api_version: str
    kind: str
    namespace: str | None
    labels: str | None
    field_selector: str | None
    kept: str
    paths: tuple[str, ...]

    def differs(self, other: Stamp) -> str:
        """The first thing that is not the same, in words; "" if all is."""
        words = {"server": "another server", "kept": "another choice of what is kept", "paths": "other indexes or paths"}
        for name in self.__struct_fields__:
            if getattr(self, name) != getattr(other, name):
                return words.get(name, f"another {name}")
        return ""


class Header(Struct, frozen=True):
    stamp: Stamp
    #: The resourceVersion that the objects are at.
    version: str
    objects: int


class _Dictionary(Struct, array_like=True):
    content: bytes | None
    expected: float


_header = msgspec.msgpack.Decoder(Header).decode
_dictionary = msgspec.msgpack.Decoder(_Dictionary).decode
_columns = msgspec.msgpack.Decoder(Columns).decode
_encode = msgspec.msgpack.Encoder().encode


def write_state(header: Header, heads: Iterable[Head], reader: HeadReader) -> Iterator[bytes]:
    """The bytes of a state, some objects at a time. ``heads`` must not change meanwhile; each slice is of the moment it is made."""
    records = RecordWriter()
    yield MAGIC + records.record(Record.HEADER, _encode(header))
    known: dict[Codec, int] = {PLAIN: 0}
    rest = iter(heads)
    while some := list(islice(rest, SLICE)):
        columns, new = columns_of(some, reader, known)
        for codec in new:
            yield records.record(Record.DICTIONARY, _encode(_Dictionary(codec.content, codec.expected)))
        yield records.record(Record.OBJECTS, _encode(columns))
    yield records.record(Record.END, b"")


class StateReader:
    """Reads a state back, slice by slice. Nothing of it may be used before ``slices`` has come to its end.

    Raises
        Damaged: the file is not what was written (constructor, ``slices``).
    """

    def __init__(self, file: BinaryIO) -> None:
        self._records = RecordReader(file)
        kind, payload = self._records.next()
        if kind is not Record.HEADER:
            raise Damaged("it does not begin with a header")
        self.header = _read(_header, payload)
        self.codecs: list[Codec] = [PLAIN]

    def slices(self, reader: HeadReader) -> Iterator[list[Head]]:
        count = 0
        while True:
            kind, payload = self._records.next()
            match kind:
                case Record.DICTIONARY:
                    found = _read(_dictionary, payload)
                    try:
                        self.codecs.append(Codec.of(found.content, found.expected))
                    except ValueError as error:
                        raise Damaged(str(error)) from None
                case Record.OBJECTS:
                    heads = self._restore(reader, payload)
                    count += len(heads)
                    yield heads
                case Record.END:
                    self._records.at_end()
                    if count != self.header.objects:
                        raise Damaged(f"it has {count} of {self.header.objects} objects")
                    return
                case Record.HEADER:
                    raise Damaged("it has two headers")

    def _restore(self, reader: HeadReader, payload: bytes) -> list[Head]:
        try:
            return heads_of(_read(_columns, payload), reader, self.codecs)
        except (ValueError, IndexError) as error:
            raise Damaged(f"its columns do not fit each other: {error}") from None


def _read(decode: Callable[[bytes], T], payload: bytes) -> T:
    try:
        return decode(payload)
    except msgspec.DecodeError as error:
        raise Damaged(f"a record cannot be read: {error}") from None
