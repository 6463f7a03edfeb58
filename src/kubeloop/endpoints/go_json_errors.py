"""Messages of Go's decoder for malformed JSON, which a kube-apiserver sends in its 400 responses.

This scanner runs only after the real parser has rejected the text. Source: Go encoding/json scanner.go.
"""

from __future__ import annotations

_SPACE = b" \t\r\n"
_DIGITS = b"0123456789"
_ENDED = "unexpected end of JSON input"


class _Fault(Exception):
    pass


def json_fault(data: bytes) -> str:
    """Return the error message of Go's decoder for ``data``, or an empty text if the data is valid JSON."""
    try:
        _Scanner(data).document()
    except _Fault as fault:
        return str(fault)
    except RecursionError:
        return "exceeded max depth"
    return ""


class _Scanner:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def document(self) -> None:
        self.value()
        self.space()
        if self.at < len(self.data):
            self.fail("after top-level value")

    def fail(self, context: str) -> None:
        if self.at >= len(self.data):
            raise _Fault(_ENDED)
        raise _Fault(f"invalid character {_quoted(self.data[self.at])} {context}")

    def space(self) -> None:
        while self.at < len(self.data) and self.data[self.at] in _SPACE:
            self.at += 1

    def peek(self) -> int:
        return self.data[self.at] if self.at < len(self.data) else -1

    def value(self) -> None:
        self.space()
        match self.peek():
            case 0x7B:
                self.object()
            case 0x5B:
                self.array()
            case 0x22:
                self.string()
            case 0x74:
                self.literal("true")
            case 0x66:
                self.literal("false")
            case 0x6E:
                self.literal("null")
            case byte if byte == 0x2D or 0x30 <= byte <= 0x39:
                self.number()
            case _:
                self.fail("looking for beginning of value")

    def object(self) -> None:
        self.at += 1
        self.space()
        if self.peek() == 0x7D:
            self.at += 1
            return
        while True:
            self.space()
            if self.peek() != 0x22:
                self.fail("looking for beginning of object key string")
            self.string()
            self.space()
            if self.peek() != 0x3A:
                self.fail("after object key")
            self.at += 1
            self.value()
            self.space()
            if self.peek() == 0x7D:
                self.at += 1
                return
            if self.peek() != 0x2C:
                self.fail("after object key:value pair")
            self.at += 1

    def array(self) -> None:
        self.at += 1
        self.space()
        if self.peek() == 0x5D:
            self.at += 1
            return
        while True:
            self.value()
            self.space()
            if self.peek() == 0x5D:
                self.at += 1
                return
            if self.peek() != 0x2C:
                self.fail("after array element")
            self.at += 1

    def string(self) -> None:
        self.at += 1
        while True:
            byte = self.peek()
            if byte < 0x20:
                self.fail("in string literal")
            self.at += 1
            if byte == 0x22:
                return
            if byte == 0x5C:
                self.escape()

    def escape(self) -> None:
        byte = self.peek()
        if byte == 0x75:
            for _ in range(4):
                self.at += 1
                if self.peek() < 0 or self.peek() not in b"0123456789abcdefABCDEF":
                    self.fail("in \\u hexadecimal character escape")
        elif byte < 0 or byte not in b'"\\/bfnrt':
            self.fail("in string escape code")
        self.at += 1

    def literal(self, word: str) -> None:
        for wanted in word[1:]:
            self.at += 1
            if self.peek() != ord(wanted):
                self.fail(f"in literal {word} (expecting '{wanted}')")
        self.at += 1

    def number(self) -> None:
        if self.peek() == 0x2D:
            self.at += 1
            if self.peek() < 0 or self.peek() not in _DIGITS:
                self.fail("in numeric literal")
        if self.peek() == 0x30:
            self.at += 1
        else:
            self.digits()
        if self.peek() == 0x2E:
            self.at += 1
            if self.peek() < 0 or self.peek() not in _DIGITS:
                self.fail("after decimal point in numeric literal")
            self.digits()
        if self.peek() in (0x65, 0x45):
            self.at += 1
            if self.peek() in (0x2B, 0x2D):
                self.at += 1
            if self.peek() < 0 or self.peek() not in _DIGITS:
                self.fail("in exponent of numeric literal")
            self.digits()

    def digits(self) -> None:
        while self.peek() >= 0 and self.peek() in _DIGITS:
            self.at += 1


_ESCAPES = {0x07: "\\a", 0x08: "\\b", 0x0C: "\\f", 0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t", 0x0B: "\\v", 0x5C: "\\\\", 0x27: "\\'"}


def _quoted(byte: int) -> str:
    if byte in _ESCAPES:
        return f"'{_ESCAPES[byte]}'"
    character = chr(byte)
    if character.isprintable():
        return f"'{character}'"
    return f"'\\x{byte:02x}'" if byte < 0x80 else f"'\\u{byte:04x}'"
