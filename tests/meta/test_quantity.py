"""Quantities: parse, canonical form, exact arithmetic. The canonical forms of the first table are answers of a real API server."""

from __future__ import annotations

import copy
import pickle
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.meta import Quantity, QuantityFormat


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        pytest.param("1e3", "1e3", id="an exponent stays an exponent"),
        pytest.param("1E3", "1E3", id="a capital exponent that is canonical is printed as written"),
        pytest.param("1E", "1E", id="E without digits is exa"),
        pytest.param("12e4", "120e3", id="exponents become multiples of three"),
        pytest.param("0.5", "500m", id="a fraction becomes thousandths"),
        pytest.param(".5", "500m", id="the whole part may be missing"),
        pytest.param("1.5Gi", "1536Mi", id="a binary fraction goes to the next smaller unit"),
        pytest.param("1Ki", "1Ki", id="binary units stay"),
        pytest.param("1024Ki", "1Mi", id="1024 of a unit are one of the next"),
        pytest.param("1000Ki", "1000Ki", id="1000 of a binary unit are not"),
        pytest.param("512Ki", "512Ki", id="binary amounts stay binary from 1024 on"),
        pytest.param("0.5Ki", "512", id="below 1024 binary amounts are printed plain"),
        pytest.param("1.1Ki", "1126400m", id="a fraction of a byte is printed in thousandths"),
        pytest.param("100m", "100m", id="thousandths stay"),
        pytest.param("1000m", "1", id="a thousand thousandths are one"),
        pytest.param("1500m", "1500m", id="more than one in thousandths stays exact"),
        pytest.param("1.500", "1.500", id="a text that looks canonical to upstream is printed as written"),
        pytest.param("0m", "0", id="nothing is printed without a unit"),
        pytest.param("0.0000000001", "1n", id="less than 1n is rounded up"),
        pytest.param("2000000000", "2G", id="thousands are counted"),
        pytest.param("2000001k", "2000001k", id="but not across a remainder"),
    ],
)
def test_canonical_form(text: str, canonical: str) -> None:
    assert str(Quantity(text)) == canonical


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'", id="nothing"),
        pytest.param("abc", "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'", id="words"),
        pytest.param(
            "1.1.1", "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'", id="two points"
        ),
        pytest.param("1mi", "unable to parse quantity's suffix", id="a unit that there is not"),
        pytest.param("1e", "unable to parse quantity's suffix", id="an exponent without digits"),
        pytest.param("Ei", "unable to parse numeric part of quantity", id="a unit without a number"),
        pytest.param("1e99999", "unable to parse quantity's suffix", id="an exponent that would take too long"),
    ],
)
def test_an_invalid_quantity_is_refused_in_kubernetes_words(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        Quantity(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        pytest.param(Quantity("1Gi") + Quantity("512Mi"), "1536Mi", id="a sum keeps the first one's form"),
        pytest.param(Quantity("0") + Quantity("512Mi"), "512Mi", id="zero takes the other's form"),
        pytest.param(Quantity("0.1") + Quantity("0.2"), "300m", id="sums of fractions are exact"),
        pytest.param(Quantity("1") - Quantity("1500m"), "-500m", id="differences may be negative"),
        pytest.param(Quantity("100m") * 3, "300m", id="a product"),
        pytest.param(3 * Quantity("1Gi"), "3Gi", id="a product from the left"),
        pytest.param(Quantity("1Gi") / 2, "512Mi", id="a share"),
        pytest.param(Quantity("1n") / 2, "1n", id="a share is never nothing"),
        pytest.param(Quantity("1") + 2, "3", id="a whole number may be added"),
        pytest.param(-Quantity("2Ki"), "-2Ki", id="the opposite"),
        pytest.param(Quantity(2**31, QuantityFormat.BINARY), "2Gi", id="a number with a form"),
        pytest.param(Quantity("4Ei") * 4, "16Ei", id="sums beyond 64 bits are exact"),
    ],
)
def test_arithmetic(result: Quantity, expected: str) -> None:
    assert str(result) == expected


def test_quantities_compare_and_hash_as_the_numbers_they_are() -> None:
    assert Quantity("1000m") == Quantity("1") == 1
    assert hash(Quantity("1000m")) == hash(Quantity("1")) == hash(1)
    assert Quantity("1Ki") > Quantity("1k") >= 1000 > Quantity("999")
    assert Quantity("100m") < Quantity("0.2") <= Fraction(1, 5)
    assert Quantity("1") != "1"
    assert sorted([Quantity("1Gi"), Quantity("1G")]) == [Quantity("1G"), Quantity("1Gi")]
    assert not Quantity("0")


def test_values_are_rounded_away_from_zero_as_in_kubernetes() -> None:
    assert Quantity("1500m").value() == 2
    assert Quantity("-1500m").value() == -2
    assert Quantity("1u").milli_value() == 1
    assert float(Quantity("1500m")) == 1.5


@pytest.mark.parametrize("text", ["1.5Gi", "1.500", "100m", "-3Ki"])
def test_copies_and_pickles_print_the_same(text: str) -> None:
    quantity = Quantity(text)
    for twin in (copy.copy(quantity), copy.deepcopy(quantity), pickle.loads(pickle.dumps(quantity))):
        assert (twin, str(twin), twin.format) == (quantity, str(quantity), quantity.format)


_TEXTS = st.builds(
    lambda sign, digits, fraction, suffix: f"{sign}{digits}{fraction}{suffix}",
    st.sampled_from(["", "-", "+"]),
    st.integers(0, 10**12),
    st.sampled_from(["", ".5", ".125", ".001", ".333333333"]),
    st.sampled_from(["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "e3", "e-3", "E6"]),
)


@given(_TEXTS)
def test_a_printed_quantity_reads_as_the_same_number(text: str) -> None:
    quantity = Quantity(text)
    again = Quantity(str(quantity))
    assert again == quantity
    # A binary quantity that is no multiple of 1024 is printed without a suffix, and reads as a decimal one; from there on nothing changes.
    assert str(Quantity(str(again))) == str(again)


@given(_TEXTS, _TEXTS)
def test_a_sum_less_one_part_is_the_other(left: str, other: str) -> None:
    assert Quantity(left) + Quantity(other) - Quantity(left) == Quantity(other)
