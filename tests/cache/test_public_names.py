"""What an informer shows its users. What the factory needs of it is private: its runner's."""

from __future__ import annotations

from kubeloop.cache import Informer

PUBLIC = {
    "add_indexes",
    "clock",
    "failure",
    "keep_recent",
    "on_event",
    "reconnects",
    "registrations",
    "resource_version",
    "scope",
    "stats",
    "stopped",
    "synced",
    "wait_synced",
    "waiting_for",
}


def test_an_informer_shows_its_users_nothing_that_starts_stops_or_feeds_it() -> None:
    assert {name for name in dir(Informer) if not name.startswith("_")} == PUBLIC
