import pytest

from kubeloop.meta.integers import decimal, is_digits


@pytest.mark.parametrize(
    ("text", "bits", "signed", "number"),
    [
        pytest.param("17", 64, True, 17, id="digits are a number"),
        pytest.param("+17", 64, True, 17, id="a plus is allowed where a sign is"),
        pytest.param("-17", 64, True, -17, id="a minus is"),
        pytest.param("-17", 64, False, None, id="an unsigned number has no sign"),
        pytest.param("+17", 64, False, None, id="not even a plus"),
        pytest.param("-", 64, True, None, id="a sign alone is no number"),
        pytest.param("", 64, True, None, id="nothing is no number"),
        pytest.param("1_000", 64, True, None, id="underscores are not allowed"),
        pytest.param(" 1", 64, True, None, id="nor are spaces"),
        pytest.param("\u0663", 64, True, None, id="nor digits of other scripts"),
        pytest.param(str(2**63 - 1), 64, True, 2**63 - 1, id="the largest signed number"),
        pytest.param(str(2**63), 64, True, None, id="one more does not fit"),
        pytest.param(str(-(2**63)), 64, True, -(2**63), id="the smallest signed number"),
        pytest.param(str(2**64 - 1), 64, False, 2**64 - 1, id="the largest unsigned number"),
        pytest.param(str(2**31), 32, True, None, id="fewer bits hold less"),
        pytest.param("0" * 10_000 + "5", 64, True, 5, id="leading zeros do not count"),
        pytest.param("9" * 1_000_000, 64, True, None, id="a million digits are refused, not converted"),
    ],
)
def test_a_decimal(text: str, bits: int, signed: bool, number: int | None) -> None:
    assert decimal(text, bits=bits, signed=signed) == number


def test_digits_are_those_of_ascii() -> None:
    assert is_digits("012")
    assert not is_digits("")
    assert not is_digits("\u00b2")
