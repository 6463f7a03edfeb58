"""The mark that decorators of handlers leave on methods, and who may have it."""

from __future__ import annotations

from typing import Any, Final

from kubeloop.controller.builder.declaration import DeclarationError

MARK: Final = "__kubeloop_handlers__"


def check_no_handlers(cls: type[Any]) -> None:
    """That a class which calls no handlers has none.

    Raises:
        DeclarationError: it has; nobody would ever call them.
    """
    for name, member in vars(cls).items():
        if hasattr(member, MARK):
            raise DeclarationError(
                f"{cls.__name__}.{name} is a handler (@on_create, @on_change, ...), which only a HandlerController calls; "
                f"derive {cls.__name__} from HandlerController, without reconcile, or take the decorator away"
            )
