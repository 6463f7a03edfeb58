"""The hand-off from informers to the sync worker."""

from __future__ import annotations

from examples.ingress_nginx.change_log import ChangeLog


def test_a_new_log_asks_for_everything() -> None:
    log = ChangeLog()
    assert log.take() is None
    assert log.take() == []


def test_changes_come_out_in_order_each_once() -> None:
    log = ChangeLog()
    log.take()
    for name in ("a", "b", "a"):
        log.add("Ingress", "shop", name)
    assert log.take() == [("Ingress", "shop", "a"), ("Ingress", "shop", "b")]
    assert log.take() == []


def test_a_full_log_never_blocks_and_asks_for_everything() -> None:
    log = ChangeLog(capacity=2)
    log.take()
    for name in ("a", "b", "c", "d"):
        log.add("Ingress", "shop", name)
    assert log.take() is None
    log.add("Ingress", "shop", "e")
    assert log.take() == [("Ingress", "shop", "e")]
