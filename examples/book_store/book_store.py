"""A store of books: the cache's bare store, for objects that no cluster has ever seen. The key of a book is its author and title."""

from dataclasses import dataclass

from kubeloop import ObjectStore
from kubeloop.cache import ObjectKeyError


@dataclass(frozen=True)
class Book:
    author: str
    title: str


def book_key(obj: object) -> str:
    if not isinstance(obj, Book):
        raise TypeError("this is not a book")
    return f"{obj.author}/{obj.title}"


def book_author(obj: object) -> str | None:
    return obj.author if isinstance(obj, Book) else None


def main() -> None:
    store = ObjectStore[object](book_key, indexers={"author": book_author})
    moby_dick = Book("Herman Melville", "Moby Dick")
    for book in (moby_dick, Book("Herman Melville", "Typee"), Book("Charles Dickens", "David Copperfield")):
        store.add(book)

    print("get:       ", store.get(moby_dick))
    print("get_by_key:", store.get_by_key("Herman Melville/Moby Dick"))
    print("by_index:  ", store.index_keys("author", "Herman Melville"))
    try:
        store.add("A Tale of Two Cities")
    except ObjectKeyError as error:
        print("add:       ", error)


if __name__ == "__main__":
    main()
