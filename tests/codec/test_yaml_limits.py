import pytest

from kubeloop.codec.yaml import read_yaml
from kubeloop.meta.errors import DecodeError


def _multiplied(levels: int, *, merged: bool = False) -> str:
    lines = ["a0: &a0 {x: y}"]
    for level in range(1, levels):
        references = ",".join([f"*a{level - 1}"] * 10)
        lines.append(f"a{level}: &a{level} {{'<<': [{references}]}}" if merged else f"a{level}: &a{level} [{references}]")
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        pytest.param(_multiplied(30), "document contains excessive aliasing", id="aliases of aliases do not multiply"),
        pytest.param(_multiplied(30, merged=True), "document contains excessive aliasing", id="nor do merged maps"),
        pytest.param("a: &a [*a]", "anchor 'a' value contains itself", id="an anchor does not hold itself"),
        pytest.param("a: " + "[" * 100_000, "exceeded max depth of 256", id="lists nest 256 levels at most"),
        pytest.param(
            "\n".join(" " * level + "a:" for level in range(400)), "exceeded max depth of 256", id="maps in blocks nest 256 levels at most"
        ),
        pytest.param(
            f"a: &a {'[' * 200}{']' * 200}\nb: {'[' * 100}*a{']' * 100}", "exceeded max depth of 256", id="levels below an alias count"
        ),
        pytest.param(f"a: [{'a,' * 400_001}]", "more than 400000 values; send it as JSON", id="values are counted"),
    ],
)
def test_a_text_is_refused_before_a_tree_is_made_of_it(text: str, fault: str) -> None:
    with pytest.raises(DecodeError, match=fault) as refused:
        read_yaml(text, name="evil.yaml")
    assert str(refused.value).startswith("evil.yaml: ")


def test_aliases_within_reason_are_read() -> None:
    (read,) = read_yaml("base: &base {a: 1, b: [2]}\nother: *base\nmerged: {<<: *base, c: 3}")
    assert read == {"base": {"a": 1, "b": [2]}, "other": {"a": 1, "b": [2]}, "merged": {"a": 1, "b": [2], "c": 3}}


def test_each_document_is_bounded_by_itself() -> None:
    document = "a: [" + "b," * 1000 + "]\n"
    assert len(read_yaml("---\n".join([document] * 3))) == 3


@pytest.mark.parametrize(
    ("written", "value"),
    [
        pytest.param("0x1f", 31, id="hexadecimal"),
        pytest.param("-0x1f", -31, id="negative hexadecimal"),
        pytest.param("010", 8, id="a leading zero is octal"),
        pytest.param("18446744073709551615", 2**64 - 1, id="64 bits without a sign"),
        pytest.param("18446744073709551616", 2.0**64, id="beyond 64 bits a number in digits is a float"),
        pytest.param("0xffffffffffffffffffffff", "0xffffffffffffffffffffff", id="beyond 64 bits a hexadecimal one is text"),
        pytest.param("9" * 5000, "9" * 5000, id="beyond all floats it is text"),
    ],
)
def test_an_integer_is(written: str, value: object) -> None:
    (read,) = read_yaml(f"a: {written}")
    assert read["a"] == value
