"""Logging of ``kubeloop server`` to stderr: text or JSON, and verbosity. Source: Kubernetes documentation, "System Logs"."""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any, Final

FORMATS: Final = ("text", "json")
#: The values of --v from which on each request is logged, and everything is logged.
REQUESTS: Final = 3
EVERYTHING: Final = 4

#: Logger of the elections; ``kubeloop server`` logs only their failures, since usually it has no other candidates.
ELECTION: Final = "kubeloop.controller.election"

#: Minimum level of the built-in controllers' own loggers without --verbose: sixty synced caches, deprecated kinds that they
#: watch, or one dropped event of a thousand are no news for the server's operator.
_LEVELS = {"kubeloop.cache": logging.WARNING, "kubeloop.controller.events": logging.ERROR, "kubeloop.transport": logging.ERROR}

#: Characters that must not reach a terminal or begin a fake line, when a client puts them into a path or a name: controls, line and
#: paragraph separators, and characters that change the direction of text.
_UNSEEN = re.compile("[\\x00-\\x08\\x0a-\\x1f\\x7f-\\x9f\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]")

_REQUEST_LOG = "kubeloop.apiserver.requests"


def configure(form: str, verbosity: int) -> None:
    """Configure logging for the whole process. ``form`` is one of ``FORMATS``, ``verbosity`` the value of ``--v``."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLogFormatter() if form == "json" else TextLogFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    everything = verbosity >= EVERYTHING
    logging.basicConfig(level=logging.DEBUG if everything else logging.INFO, handlers=[handler])
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    logging.getLogger(_REQUEST_LOG).setLevel(logging.INFO if verbosity >= REQUESTS else logging.WARNING)
    if not everything:
        for name, level in _LEVELS.items():
            logging.getLogger(name).setLevel(level)


class TextLogFormatter(logging.Formatter):
    """Formats fields as klog: ``name="text" other=5`` after the message. A record is one line; traceback lines begin with blanks."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the standard library's name
        line = super().formatMessage(record)
        fields = getattr(record, "fields", None)
        if fields:
            line += " " + " ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in fields.items())
        return _visible(line)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the standard library's name
        return "\n".join(f"    {_visible(line)}" for line in super().formatException(ei).split("\n"))


class JsonLogFormatter(logging.Formatter):
    """Formats one object per line: ``ts`` (RFC 3339), ``level``, ``logger``, ``msg``, extra fields, and ``err`` with a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        shown: dict[str, object] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            shown["err"] = self.formatException(record.exc_info)
        return _visible(json.dumps(shown, ensure_ascii=False, default=str))


def _visible(text: str) -> str:
    """Return the text with unprintable characters as escapes, which are JSON's too."""
    return _UNSEEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
