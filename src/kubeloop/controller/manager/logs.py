"""Logs of a program: to standard error, as text or as one JSON object per record, with the fields of its context (cluster, key ...)."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final, TextIO

from kubeloop.transport import LogContext

#: Attributes that every record has; all others come from ``extra=``.
_USUAL: Final = frozenset((*vars(logging.LogRecord("", 0, "", 0, "", None, None)), "message", "asctime", "taskName", "kubeloop"))


class JsonFormatter(logging.Formatter):
    """Formats a record as a JSON object in one line.

    The object has ``time`` (RFC 3339 in UTC), ``level``, ``logger`` and ``message``, the context's fields (``controller``, ``key``,
    ``lease_transitions`` ...), the fields of ``extra=``, and ``error`` with the traceback. Values that JSON lacks are converted by ``str``.
    """

    def format(self, record: logging.LogRecord) -> str:
        tree: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        about = {**getattr(record, "kubeloop", {}), **{name: value for name, value in vars(record).items() if name not in _USUAL}}
        tree |= {name: value for name, value in about.items() if name not in tree}
        if record.exc_info and record.exc_info[0] is not None:
            tree["error"] = self.formatException(record.exc_info)
        try:
            return json.dumps(tree, default=str, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError):  # Keys that are not strings, NaN or cycles must not lose the record.
            return json.dumps({name: str(value) for name, value in tree.items()}, ensure_ascii=False)


class TextFormatter(logging.Formatter):
    """Formats a record as one line: time, level, logger, message, and the context's fields as ``name=value``.

    Fields that the message names before its first colon are left out.
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        fields = getattr(record, "kubeloop", {})
        subject, colon, _ = record.message.partition(": ")
        named = {subject, *subject.split()} if colon else set()
        about = "".join(f" {name}={value}" for name, value in fields.items() if value and str(value) not in named)
        return super().formatMessage(record) + about


_FORMATTERS: Final = {"json": JsonFormatter, "text": TextFormatter}


class LogOutput:
    """Configures the root logger. ``level`` and ``style`` (json, text) can be changed at any time; ``close`` restores the former handlers.

    Present handlers of the root logger are disabled until ``close``, so that no record is written twice.
    """

    def __init__(self, style: str = "text", level: str = "INFO", stream: TextIO | None = None) -> None:
        self._root = logging.getLogger()
        self._before = (list(self._root.handlers), self._root.level)
        self._handler = logging.StreamHandler(stream or sys.stderr)
        self._handler.addFilter(LogContext())
        self._root.handlers = [self._handler]
        self.set(style, level)

    def set(self, style: str, level: str) -> None:
        """Set style and level. Raises ValueError for an unknown level, or a style other than json and text."""
        if style not in _FORMATTERS:
            raise ValueError(f"a log is written as json or text, not {style!r}")
        self._root.setLevel(level.upper())
        self._handler.setFormatter(_FORMATTERS[style]())

    def close(self) -> None:
        """Restore the former state of the root logger."""
        self._root.handlers, level = self._before
        self._root.setLevel(level)
