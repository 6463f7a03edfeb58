"""Replays scenarios of the set ``plain`` on a server, and compares the answers with the recorded ones of a real server."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.conformance import recordings
from tests.conformance.compare import Difference, compare
from tests.conformance.scenario import Run, Step, scenario_names, scenarios
from tests.conformance.wire import Server
from tests.servers import real_is_wanted

FOLDER = Path(__file__).parent / "scenarios" / "plain"
#: In the order of a whole run: a few recordings show what scenarios before them left behind.
COUNTED = scenario_names(FOLDER)
#: Seconds until a step that waits for something gives up: on the embedded server, and on a real one, whose admission looks for new kinds of
#: parameters every 30 s.
_PATIENCE = (5.0, 45.0)


@dataclass(frozen=True)
class Replayed:
    """The answers of a scenario beside the recorded ones.

    Attributes:
        shown: Differences that are not known.
        known: The differences of each step that is known to differ.
        equal: Steps that are known to differ, and do not.
        surprises: Answers that the script did not expect.
    """

    shown: list[str]
    known: dict[int, list[Difference]]
    equal: set[int]
    surprises: list[str]


@cache
def all_scenarios() -> dict[str, Step]:
    return dict(scenarios(FOLDER))


def replay(server: Server, name: str, known: Collection[int] = ()) -> Replayed:
    """Replay a scenario.

    Args:
        server: The server.
        name: The scenario.
        known: Steps that are known to differ.
    """
    run = Run(server, all_scenarios()[name], name, _PATIENCE[real_is_wanted()])
    actual = run.run()
    expected = recordings.load(recordings.path_of("plain", name))
    met: dict[int, list[Difference]] = {}
    shown: list[str] = []
    for step, differences in compare(expected, actual).differences.items():
        number = re.match(r"step (\d+) ", step)
        if number is not None and int(number[1]) in known:
            met[int(number[1])] = differences
        else:
            shown += [f"{step}: {difference}" for difference in differences[:3]]
    return Replayed(shown, met, set(known) - set(met), run.surprises)
