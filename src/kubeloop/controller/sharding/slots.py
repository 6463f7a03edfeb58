"""Which replica a key belongs to: keys fall into slots, slots belong to members by rendezvous hashing.

When a member comes, slots move only to it; when one goes, only its own move (Thaler and Ravishankar 1998). Every replica must compute the
same, whatever its version: change nothing here without raising ``PROTOCOL``.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

#: Version of this function and of what members write about themselves. Members of another version are believed to claim everything.
PROTOCOL = "1"

#: Keys are handed over by the slot. A thousand keep the spread over ten members within a few per cent, and a view costs 10 ms to compute.
SLOTS = 1024

#: A set of slots is an integer, one bit for each.
EVERY_SLOT = (1 << SLOTS) - 1


def slot_of(text: str) -> int:
    """The slot of a key, given as text. Stable over processes and versions of Python."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big") % SLOTS


def claim(members: frozenset[str], member: str) -> int:
    """The slots that ``member`` has among ``members``, as bits; none if it is not one of them."""
    return _table(members).get(member, 0)


@lru_cache(maxsize=64)
def _table(members: frozenset[str]) -> dict[str, int]:
    """The slots of each member. Each slot goes to who draws the highest number for it; of equal ones, the greater name."""
    names = sorted(members)
    seeds = [blake2b(name.encode("utf-8", "surrogatepass"), digest_size=32).digest() for name in names]
    found = dict.fromkeys(names, 0)
    for slot in range(SLOTS):
        number = slot.to_bytes(2, "big")
        best = max(range(len(names)), key=lambda place: (blake2b(number, digest_size=8, key=seeds[place]).digest(), place), default=None)
        if best is not None:
            found[names[best]] |= 1 << slot
    return found
