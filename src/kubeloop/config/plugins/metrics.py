"""Metrics of the credential plugins. There is one set for the whole process, because the process shares the plugins' credentials.

Source: client-go plugin/pkg/client/auth/exec/metrics.go.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from datetime import UTC, datetime
from weakref import WeakKeyDictionary

#: Upper bounds of certificates' ages in seconds: 10 and 30 minutes, 1 and 4 hours, a day, a week, a month, 3 and 6 months, 1 and 4 years.
AGES = (600, 1800, 3600, 14400, 86400, 604800, 2592000, 7776000, 15552000, 31104000, 124416000)
#: The exit status for a plugin that did not run, as in client-go.
NO_STATUS = 1


class PluginMetrics:
    """Counts plugin runs (``calls``) by exit status and outcome, decisions of the plugin policy (``policy``), and the ``ages`` of replaced
    client certificates, one counter for each bound in ``AGES``.
    """

    def __init__(self) -> None:
        self.calls: defaultdict[tuple[int, str], int] = defaultdict(int)
        self.policy: defaultdict[str, int] = defaultdict(int)
        self.ages = [0] * (len(AGES) + 1)
        self.total_age = 0.0
        self._validity: WeakKeyDictionary[object, tuple[datetime, datetime]] = WeakKeyDictionary()

    def certificate(self, source: object, chain: bytes | None, now: datetime) -> None:
        """Record that ``source`` has a new certificate. An unreadable certificate is not counted."""
        before = self._validity.pop(source, None)
        if before is not None:
            age = (now - before[0]).total_seconds()
            self.ages[bisect_left(AGES, age)] += 1
            self.total_age += age
        if chain is not None and (found := validity(chain)) is not None:
            self._validity[source] = found

    def soonest_expiry(self) -> datetime | None:
        """Return the earliest expiry of all current certificates, or None if there are none."""
        return min((end for _, end in list(self._validity.values())), default=None)


figures = PluginMetrics()


def validity(chain: bytes) -> tuple[datetime, datetime] | None:
    """Return begin and end of the validity of the first certificate in a PEM text, or None if it cannot be read.

    RFC 5280, section 4.1: version, serialNumber, signature and issuer precede it.
    """
    import ssl

    end = b"-----END CERTIFICATE-----"
    start = chain.find(b"-----BEGIN CERTIFICATE-----")
    try:
        der = ssl.PEM_cert_to_DER_cert(chain[start : chain.index(end, start) + len(end)].decode("ascii"))
        body = _parts(_parts(der)[0][1])  # Certificate, tbsCertificate
        fields = _parts(body[0][1])
        times = _parts(fields[4 if fields[0][0] == _VERSION else 3][1])
        return _time(*times[0]), _time(*times[1])
    except (ValueError, IndexError, UnicodeDecodeError):
        return None


_VERSION = 0xA0
_UTC_TIME = 0x17


def _parts(der: bytes) -> list[tuple[int, bytes]]:
    """Return the tag and the content of each element of a DER text (X.690)."""
    result = []
    at = 0
    while at < len(der):
        tag, size = der[at], der[at + 1]
        at += 2
        if size & 0x80:
            count = size & 0x7F
            size = int.from_bytes(der[at : at + count], "big")
            at += count
        result.append((tag, der[at : at + size]))
        at += size
    return result


def _time(tag: int, content: bytes) -> datetime:
    text = content.decode("ascii")
    if tag == _UTC_TIME:  # two digits of a year between 1950 and 2049 (RFC 5280, section 4.1.2.5.1)
        text = ("20" if text[:2] < "50" else "19") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
