"""Converts the conformance tests of the CEL specification (cel-spec, tests/simple/testdata/*.textproto) to lines of JSON.

    python -m tools.cel_spec FOLDER tests/cel/spec

FOLDER is that of the ``.textproto`` files: ``go mod download -json cel.dev/expr@v0.25.1`` prints the folder of the module.
Files about protobuf messages and about extensions that Kubernetes does not enable are left out; tests/cel/test_spec.py says which.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: Files that use neither protobuf messages nor extensions that Kubernetes leaves out.
FILES = (
    "basic",
    "comparisons",
    "conversions",
    "fields",
    "fp_math",
    "integer_math",
    "lists",
    "logic",
    "macros",
    "macros2",
    "optionals",
    "parse",
    "plumbing",
    "string",
    "string_ext",
    "timestamps",
    "type_deduction",
)
_TOKEN = re.compile(r"""\s*(?:\#[^\n]*\s*)*("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|[{}\[\]:,;<>]|[^\s{}\[\]:,;<>"'#]+)""")
#: A JSON number cannot hold these.
_NUMBERS = {"inf": "Infinity", "infinity": "Infinity", "-inf": "-Infinity", "-infinity": "-Infinity", "nan": "NaN"}


def parse(text: str) -> dict[str, list[Any]]:
    """Parse protobuf's text format: each field has a list of values, for any field may be repeated."""
    tokens = iter(_TOKEN.findall(text))
    return _fields(tokens, "")


def _fields(tokens: Iterator[str], end: str) -> dict[str, list[Any]]:
    fields: dict[str, list[Any]] = {}
    pending = ""
    while True:
        name = pending or next(tokens, "")
        pending = ""
        if name == end:
            return fields
        if name in ",;":
            continue
        if name == "[":  # the name of an extension, or the type of an Any: [type.googleapis.com/x.Y]
            name = "".join(iter(lambda: next(tokens), "]"))
        token = next(tokens)
        if token == ":":
            token = next(tokens)
        if token == "[":
            token = next(tokens)
            while token != "]":
                if token != ",":
                    fields.setdefault(name, []).append(_fields(tokens, "}") if token == "{" else _scalar(token))
                token = next(tokens)
        elif token in "{<":
            fields.setdefault(name, []).append(_fields(tokens, "}" if token == "{" else ">"))
        elif token[0] in "\"'":
            value = _string(token)
            pending = next(tokens, "")
            while pending[:1] in ('"', "'") and pending:
                value += _string(pending)
                pending = next(tokens, "")
            fields.setdefault(name, []).append(value.decode("utf-8", "surrogateescape"))
            if pending == end:
                return fields
        else:
            fields.setdefault(name, []).append(_scalar(token))


_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|x([0-9a-fA-F]{1,2})|([0-7]{1,3})|(.))", re.DOTALL)
_CHARACTERS = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}


def _string(token: str) -> bytes:
    """Escapes are C's: octal and hexadecimal ones are bytes, ``\\u`` is a character."""
    value, at, body = b"", 1, token[:-1]
    for escape in _ESCAPE.finditer(body):
        value += body[at : escape.start()].encode()
        at = escape.end()
        if character := escape[1] or escape[2]:
            value += chr(int(character, 16)).encode("utf-8", "surrogatepass")
        elif escape[3]:
            value += bytes([int(escape[3], 16)])
        elif escape[4]:
            value += bytes([int(escape[4], 8)])
        else:
            value += bytes([_CHARACTERS[escape[5]]]) if escape[5] in _CHARACTERS else escape[5].encode()
    return value + body[at:].encode()


def _scalar(token: str) -> Any:
    if token in ("true", "false"):
        return token == "true"
    if token.lower() in _NUMBERS:
        return _NUMBERS[token.lower()]
    if re.fullmatch(r"-?(0x[0-9a-fA-F]+|\d+)", token):
        return int(token, 0)
    if re.fullmatch(r"-?[\d.]+([eE][-+]?\d+)?f?", token):
        return float(token.rstrip("f"))
    return token if token[0] not in "\"'" else _string(token).decode("utf-8", "surrogateescape")


def cases(text: str) -> Iterator[dict[str, Any]]:
    """Yield the tests of a file: name with its section, expression, declarations, bindings and the expected result."""
    for section in parse(text).get("section", []):
        for test in section.get("test", []):
            case: dict[str, Any] = {"name": f"{section['name'][0]}/{test['name'][0]}", "expr": test["expr"][0]}
            if types := test.get("type_env"):
                case["types"] = types
            if bindings := test.get("bindings"):
                case["bindings"] = {one["key"][0]: one["value"][0] for one in bindings}
            for key in ("disable_check", "disable_macros", "check_only", "container"):
                if key in test:
                    case[key] = test[key][0]
            if typed := test.get("typed_result"):
                case["type"] = typed[0].get("deduced_type", [None])[0]
                test = {**test, "value": typed[0].get("result", test.get("value", [{"bool_value": [True]}]))}
            if "eval_error" in test:
                case["error"] = True
            else:
                case["value"] = test.get("value", [{"bool_value": [True]}])[0]
            yield case


def main(arguments: list[str]) -> int:
    source, target = Path(arguments[0]), Path(arguments[1])
    for name in FILES:
        lines = [json.dumps(one, ensure_ascii=True, sort_keys=True) for one in cases((source / f"{name}.textproto").read_text())]
        (target / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
        print(f"{name}: {len(lines)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
