"""String formats of custom resource schemas."""

from __future__ import annotations

import pytest

from kubeloop.schema.formats import is_recognised, matches

CASES = {
    "date-time": (["2020-01-01T00:00:00Z", "2020-01-01t23:59:59.5+01:00"], ["2020-01-01 00:00:00Z", "2020-13-01T00:00:00Z", "x"]),
    "date": (["2024-02-29"], ["2023-02-29", "2024-2-9"]),
    "duration": (["1h30m", "22 ns", "3 days"], ["x", "1x"]),
    "ipv4": (["10.0.0.1", "010.0.0.1"], ["10.0.0", "::1"]),
    "ipv6": (["::1", "fe80::1"], ["1.2.3.4", "g::"]),
    "cidr": (["10.0.0.0/8", "fd00::/8"], ["10.0.0.0", "10.0.0.0/33", "10.0.0.0/x"]),
    "mac": (["00:11:22:33:44:55", "0011.2233.4455"], ["00:11", "00-11:22-33:44-55"]),
    "uuid": (["123e4567-e89b-12d3-a456-426614174000"], ["123e4567"]),
    "uuid4": (["123e4567-e89b-42d3-a456-426614174000"], ["123e4567-e89b-12d3-a456-426614174000"]),
    "hostname": (["a.example", "a-b"], ["-a", "a_b", "a..b"]),
    "email": (["a@b.example"], ["a", "@b"]),
    "uri": (["http://a/b", "/a"], ["a", "", "http://a b"]),
    "byte": (["YQ=="], ["Y", ""]),
    "isbn10": (["0321751043"], ["0321751044"]),
    "isbn13": (["978-0321751041"], ["978-0321751042"]),
    "creditcard": (["4111 1111 1111 1111"], ["4111 1111 1111 1112"]),
    "ssn": (["123-45-6789"], ["12-45-6789"]),
    "hexcolor": (["#FFFFFF", "fff"], ["#ffff"]),
    "rgbcolor": (["rgb(1, 2,255)"], ["rgb(1,2,256)"]),
    "bsonobjectid": (["507f1f77bcf86cd799439011"], ["507f"]),
    "password": (["anything"], []),
    "k8s-short-name": (["a-1"], ["A", "-a", "a" * 64]),
    "k8s-long-name": (["a.b-1"], ["a..b", "a" * 254]),
}


@pytest.mark.parametrize(
    ("name", "text", "fits"),
    [
        pytest.param(name, text, fits, id=f"{text!r} {'has' if fits else 'does not have'} the format {name}")
        for name, (good, bad) in CASES.items()
        for fits, texts in ((True, good), (False, bad))
        for text in texts
    ],
)
def test_format(name: str, text: str, fits: bool) -> None:
    assert matches(name, text) == fits


@pytest.mark.parametrize(
    ("type_", "name", "known"),
    [
        pytest.param("string", "date-time", True, id="strings may be times"),
        pytest.param("", "datetime", True, id="dashes do not matter"),
        pytest.param("string", "int32", False, id="strings have no number formats"),
        pytest.param("integer", "int64", True, id="whole numbers have sizes"),
        pytest.param("number", "double", True, id="numbers have precisions"),
        pytest.param("object", "date", False, id="objects have no formats"),
    ],
)
def test_recognised(type_: str, name: str, known: bool) -> None:
    assert is_recognised(type_, name) == known


def test_an_unknown_format_is_ignored() -> None:
    assert matches("nobody-knows", "x")
