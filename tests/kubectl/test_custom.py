"""kubectl and custom resources: a CRD, its objects, refused objects, and the subresources."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.kubectl.manifests import BOOK, CRD
from tests.kubectl.runner import Kubectl

pytestmark = pytest.mark.server


@pytest.fixture
def library(kubectl: Kubectl) -> Iterator[Kubectl]:
    """The CRD, established and published; deleted afterwards, since it is not of the namespace."""
    kubectl("apply", "-f", "-", stdin=CRD)
    kubectl("wait", "--for=condition=Established", "crd/books.library.example.com", "--timeout=10s")
    kubectl.wait_published("library.example.com", "v1", "books")
    yield kubectl
    kubectl("delete", "crd", "books.library.example.com", "--wait")


def test_a_crd_and_its_objects_can_be_applied_and_listed_with_its_columns(library: Kubectl) -> None:
    assert library("apply", "-f", "-", stdin=BOOK) == "book.library.example.com/david-copperfield created\n"
    assert library("apply", "-f", "-", stdin=BOOK) == "book.library.example.com/david-copperfield unchanged\n"
    header, row = library("get", "bk").splitlines()
    assert header.split() == ["NAME", "AUTHOR", "AGE"]
    assert row.split()[:3] == ["david-copperfield", "Charles", "Dickens"]
    assert library("get", "books", "-o", "wide").splitlines()[0].split() == ["NAME", "AUTHOR", "PAGES", "AGE"]


def test_defaults_of_the_schema_are_filled_in(library: Kubectl) -> None:
    library("apply", "-f", "-", stdin=BOOK)
    assert library("get", "book", "david-copperfield", "-o", "jsonpath={.spec.pages}") == "100"


def test_missing_required_fields_are_named(library: Kubectl) -> None:
    said = library.refused("create", "-f", "-", stdin=BOOK.replace("{author: Charles Dickens, title: David Copperfield}", "{pages: 3}"))
    assert 'The Book "david-copperfield" is invalid' in said
    assert "spec.author: Required value" in said
    assert "spec.title: Required value" in said


def test_a_value_out_of_range_is_refused(library: Kubectl) -> None:
    said = library.refused("create", "-f", "-", stdin=BOOK.replace("title:", "pages: 0, title:"))
    assert "spec.pages: Invalid value: 0: spec.pages in body should be greater than or equal to 1" in said


def test_unknown_fields_are_refused_by_strict_kubectl_and_pruned_otherwise(library: Kubectl) -> None:
    extra = BOOK.replace("title:", "colour: red, title:")
    assert 'unknown field "spec.colour"' in library.refused("create", "-f", "-", stdin=extra)
    library("create", "--validate=false", "-f", "-", stdin=extra)
    assert "colour" not in library("get", "book", "david-copperfield", "-o", "json")


def test_status_changes_only_through_its_subresource(library: Kubectl) -> None:
    library("apply", "-f", "-", stdin=BOOK)
    library("patch", "book", "david-copperfield", "--type=merge", "-p", '{"status":{"lent":true}}')
    assert "lent" not in library("get", "book", "david-copperfield", "-o", "json")
    library(
        "patch", "book", "david-copperfield", "--type=merge", "--subresource=status", "-p", '{"status":{"lent":true},"spec":{"pages":7}}'
    )
    book = json.loads(library("get", "book", "david-copperfield", "-o", "json"))
    assert (book["status"], book["spec"]["pages"], book["metadata"]["generation"]) == ({"lent": True}, 100, 1)


def test_explain_knows_the_custom_kind(library: Kubectl) -> None:
    text = library("explain", "book.spec")
    assert "GROUP:      library.example.com" in text
    assert "author\t<string> -required-" in text


def test_api_resources_shows_the_kind_while_its_crd_lives(library: Kubectl) -> None:
    rows = [line.split() for line in library("api-resources", "--api-group=library.example.com").splitlines()]
    assert ["books", "bk", "library.example.com/v1", "true", "Book"] in rows


def test_a_category_finds_the_custom_objects(library: Kubectl) -> None:
    library("apply", "-f", "-", stdin=BOOK)
    assert "book.library.example.com/david-copperfield" in library("get", "all", "-o", "name")
