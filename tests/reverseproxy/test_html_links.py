"""Links of pages that were fetched through the server."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.reverseproxy.backend import Backend
from kubeloop.reverseproxy.html_links import Links, start_tags

PREFIX = "/api/v1/namespaces/n/pods/p/proxy"
LINKS = Links.through(f"{PREFIX}/a/b", Backend("192.0.2.7", 8080, None, "/a/b"))


def test_the_prefix_is_what_stands_before_the_backends_path() -> None:
    assert (LINKS.prefix, LINKS.uri) == (PREFIX, f"{PREFIX}/a/b")
    assert Links.through(f"{PREFIX}/", Backend("x", 1, None, "/")).uri == f"{PREFIX}/"


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        pytest.param("/x/y?z=1#f", f"{PREFIX}/x/y?z=1#f", id="a path of the backend"),
        pytest.param("/x/", f"{PREFIX}/x/", id="its slash stays"),
        pytest.param("/", f"{PREFIX}/", id="its root"),
        pytest.param("/a%20b", f"{PREFIX}/a%20b", id="its escapes stay"),
        pytest.param("http://192.0.2.7:8080/x", f"{PREFIX}/x", id="the backend by its address"),
        pytest.param("https://api:6443/x", f"{PREFIX}/x", id="the server by the name that the client has for it"),
        pytest.param(f"{PREFIX}/x", f"{PREFIX}/x", id="what leads through the server already"),
        pytest.param("http://elsewhere/x", "http://elsewhere/x", id="another server"),
        pytest.param("x/y", "x/y", id="a relative link"),
        pytest.param("#here", "#here", id="a place in the page"),
        pytest.param("http://[bad/x", "http://[bad/x", id="a text that is no URL"),
    ],
)
def test_a_link(link: str, expected: str) -> None:
    assert LINKS.rewritten(link, "api:6443") == expected


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        pytest.param("<A HREF='/x'>", f'<a href="{PREFIX}/x">', id="any case and quote"),
        pytest.param("<a title=t href=/x>", f'<a title="t" href="{PREFIX}/x">', id="no quotes"),
        pytest.param('<img src="/x"/>', f'<img src="{PREFIX}/x"/>', id="a tag that closes itself"),
        pytest.param('<a href="/x?a&amp;b">', f'<a href="{PREFIX}/x?a&amp;b">', id="escapes"),
        pytest.param('<p href="/x" class=y>', '<p href="/x" class=y>', id="elements without links stay as they are"),
        pytest.param('<a name="/x">', '<a name="/x">', id="other attributes too"),
        pytest.param("<!-- <a href='/x'> -->", "<!-- <a href='/x'> -->", id="comments"),
        pytest.param('<script src="/x">"<a href=/x>"</script>', f'<script src="{PREFIX}/x">"<a href=/x>"</script>', id="text of scripts"),
        pytest.param("a < b <a href=/x", "a < b <a href=/x", id="tags that do not end"),
        pytest.param('<a href="/x>', '<a href="/x>', id="quotes that do not end"),
        pytest.param("<![if x]><a href=/x>", f'<![if x]><a href="{PREFIX}/x">', id="marked sections"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_a_page(page: str, expected: str) -> None:
    assert LINKS.page(page, "api") == expected


@given(page=st.text(alphabet="<>ahref=/'\" !-script", max_size=80))
@settings(max_examples=150)
def test_whatever_a_page_holds_it_is_read(page: str) -> None:
    for tag in start_tags(page):
        assert page[tag.start] == "<"
        assert page[tag.end - 1] == ">"
    LINKS.page(page, "api")


@pytest.mark.parametrize(
    "piece", ["<", "<a ", "<a href='", "<!--", "<script>", "<a href=\"'>", "</", "<a href=/x>", "&amp", "<a a=&", "= "]
)
def test_a_page_of_many_pieces_is_read_in_one_pass(piece: str) -> None:
    """Nothing is looked at twice."""
    page = piece * 40_000
    assert LINKS.page(page, "api")
    tags = list(start_tags(page))
    assert all(before.end <= after.start for before, after in itertools.pairwise(tags))
