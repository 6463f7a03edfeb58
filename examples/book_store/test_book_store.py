"""The store of books does what its README shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.book_store import book_store
from examples.book_store.book_store import Book, book_key
from kubeloop import ObjectStore
from kubeloop.cache import ObjectKeyError

HERE = Path(__file__).parent
MOBY_DICK = Book("Herman Melville", "Moby Dick")


def test_it_prints_what_the_readme_shows(capsys: pytest.CaptureFixture[str]) -> None:
    book_store.main()
    printed = "".join(f"    {line}\n" for line in capsys.readouterr().out.splitlines())
    assert printed.count("\n") == 4
    assert printed in (HERE / "README.md").read_text()


def test_get_and_get_by_key_return_moby_dick() -> None:
    store = ObjectStore[object](book_key)
    store.add(MOBY_DICK)
    assert store.get(Book("Herman Melville", "Moby Dick")) is MOBY_DICK
    assert store.get_by_key("Herman Melville/Moby Dick") is MOBY_DICK


def test_a_missing_book_is_a_key_error() -> None:
    store = ObjectStore[object](book_key)
    with pytest.raises(ObjectKeyError, match="not a book") as caught:
        store.add("Moby Dick")
    assert (caught.value.object, store.list()) == ("Moby Dick", [])
