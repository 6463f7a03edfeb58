"""Protobuf's wire format below messages: varints, and flat messages that are decoded without a table.

Source: protocol buffers' encoding guide.
"""

from __future__ import annotations

from typing import Any

from kubeloop.meta.errors import DecodeError, KubeloopError


class EncodeError(KubeloopError, ValueError):
    """A JSON tree cannot be encoded in protobuf: it has an unknown field, or a value of another type."""


_BITS = (1 << 64) - 1


def varint(value: int) -> bytes:
    """Encode a number as a varint; negative numbers in two's complement of 64 bits."""
    if 0 <= value < 128:
        return bytes((value,))
    value &= _BITS
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Decode a varint at the index ``at``; return the unsigned number of 64 bits and the index after it.

    Raises:
        DecodeError: The number has more than ten bytes.
        IndexError: The data ends before the number does.
    """
    first = data[at]
    return (first, at + 1) if first < 128 else rest_of_varint(data, at + 1, first)


def rest_of_varint(data: bytes, at: int, first: int) -> tuple[int, int]:
    """Decode a varint whose first byte, 128 or above, was read already. It returns and raises the same as ``read_varint``."""
    value = first & 127
    for shift in range(7, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & _BITS, at
    raise DecodeError("proto: integer overflow")


def signed(number: int, bits: int) -> int:
    """Return the signed value of a number in two's complement of ``bits`` bits."""
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> (bits - 1) else number


def kind_of(value: Any) -> str:
    """Return the JSON type of a value in words (``a string``, ``an object``), for error texts.

    Error texts never contain the value itself, because it may be secret.
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "an object" if isinstance(value, dict) else "a list"


class FlatFields:
    """A decoded message that consists of numbers and byte strings. If a field is repeated, the last value counts.

    Raises
        DecodeError: the bytes are truncated or of a wrong wire type; the text names the message.
    """

    def __init__(self, name: str, data: bytes, at: int = 0) -> None:
        self._name = name
        self._numbers: dict[int, int] = {}
        self._bytes: dict[int, bytes] = {}
        end = len(data)
        try:
            while at < end:
                key, at = read_varint(data, at)
                number, wire = key >> 3, key & 7
                if wire == 0:
                    self._numbers[number], at = read_varint(data, at)
                elif wire == 2:
                    size, at = read_varint(data, at)
                    if at + size > end:
                        raise IndexError
                    self._bytes[number] = data[at : at + size]
                    at += size
                else:
                    raise DecodeError(f"proto: {name}: wrong wire type {wire} of field {number}")
        except IndexError:
            raise DecodeError(f"{name}: unexpected EOF") from None

    def number(self, number: int, bits: int) -> int:
        if number in self._bytes:
            raise DecodeError(f"proto: {self._name}: wrong wire type 2 of field {number}")
        return signed(self._numbers.get(number, 0), bits)

    def bytes(self, number: int) -> bytes:
        if number in self._numbers:
            raise DecodeError(f"proto: {self._name}: wrong wire type 0 of field {number}")
        return self._bytes.get(number, b"")

    def text(self, number: int) -> str:
        """Return a field as text; bytes that are not UTF-8 become U+FFFD, as Go prints them in JSON."""
        return str(self.bytes(number), "utf-8", "replace")
