"""Pages of lists with hidden objects: filled up with visible ones, so that neither their size nor their end tells of hidden objects.

The token of a kube-apiserver's page contains the name of its last object. Therefore a page for a client always ends with an object that the
client may see, or with the list; the token is the API server's own, so that any other proxy can continue the list.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol
from urllib.parse import quote, unquote_plus

#: Objects of a page in which the proxy looks for visible ones, after a page without any.
_PROBE: Final = 500
#: Parameters that a request for a further page has in another form, or must not have.
_OF_PAGE: Final = frozenset({"limit", "continue", "resourceVersion", "resourceVersionMatch"})

#: Returns the positions of the visible objects in the page at a token with a number of objects, and the token of the page after it.
Probe = Callable[[str, int], Awaitable[tuple[Sequence[int], str]]]


class PageProgress(Protocol):
    """A list that is made of several pages."""

    #: The token of the next page; empty at the end of the list.
    continue_token: str

    @property
    def shown(self) -> int:
        """The number of objects that the client gets."""


async def further_pages(limit: int, progress: PageProgress, probe: Probe) -> AsyncIterator[tuple[str, int]]:
    """Yield token and number of objects of each page of the API server that is needed to fill a client's page.

    Args:
        limit: The number of objects that the client asked for.
        progress: The list so far. The caller adds each page to it before it takes the next.
        probe: Looks at a page without adding it.
    """
    looks_ahead = False
    while progress.continue_token and progress.shown < limit:
        # As many as are missing: if all of them are visible, the page ends with a visible one.
        token, shown, missing = progress.continue_token, progress.shown, limit - progress.shown
        if looks_ahead:
            # Many hidden objects in a row: find the next visible ones without a request for each.
            positions, following = await probe(token, _PROBE)
            if not positions:
                progress.continue_token = following
                continue
            missing = positions[min(missing, len(positions)) - 1]
        yield token, missing
        looks_ahead = progress.shown == shown
    token, number = progress.continue_token, 1
    while token:
        # A token after which there are only hidden objects would tell that there are some.
        positions, token = await probe(token, number)
        if positions:
            return
        number = _PROBE
    progress.continue_token = ""


def page_query(query: str, token: str, number: int) -> str:
    """Return the query of a request for a further page.

    Args:
        query: The query of the request for the first page.
        token: The token of the page.
        number: The number of objects.
    """
    return with_parameters(query, _OF_PAGE, {"limit": str(number), "continue": token})


def with_parameters(query: str, without: frozenset[str], added: Mapping[str, str]) -> str:
    """Return a query without some parameters, however their names are encoded, and with others."""
    pairs = [pair for pair in query.split("&") if pair and unquote_plus(pair.partition("=")[0]) not in without]
    return "&".join([*pairs, *(f"{name}={quote(value, safe='')}" for name, value in added.items())])
