"""Each controller of the catalogue has a test that kills it between its writes and runs it twice."""

from __future__ import annotations

import ast
from pathlib import Path

from kubeloop.controlplane.catalogue import KNOWN_CONTROLLERS, ClusterKeys, ClusterTrust
from kubeloop.pki import CertificateAuthority, SigningKey

#: The controllers without a ``KillScenario``, each with the reason.
EXCEPTIONS: dict[str, str] = {}


def implemented() -> set[str]:
    """Return the classes of all controllers that kubeloop implements."""
    trust = ClusterTrust("authority", ClusterKeys(CertificateAuthority.create("test"), SigningKey.create()))
    return {
        type(controller).__name__ for entry in KNOWN_CONTROLLERS.values() if entry.create is not None for controller in entry.create(trust)
    }


def scenarios(module: ast.Module) -> set[str]:
    """Return the names that the controllers of the ``KillScenario``s of a module use, directly or through functions of the module."""
    functions = {one.name: one for one in module.body if isinstance(one, ast.FunctionDef)}
    names: set[str] = set()
    for call in ast.walk(module):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "KillScenario":
            direct = _names(call.args[0])
            names |= direct.union(*(_names(functions[name]) for name in direct & functions.keys()))
    return names


def _names(tree: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(tree) if isinstance(one, ast.Name)}


def killed() -> set[str]:
    return set().union(*(scenarios(ast.parse(path.read_text())) for path in Path(__file__).parent.glob("test_*.py")))


def test_each_controller_has_a_kill_scenario_or_a_reason_why_not() -> None:
    assert implemented() - killed() == EXCEPTIONS.keys()


def test_a_scenario_counts_for_the_controllers_that_it_kills_and_not_for_their_companions() -> None:
    module = ast.parse(
        "def made():\n    return Indirect()\nKillScenario(lambda: [Direct(), made()], steps, [Kind], companions=lambda: [Companion()])"
    )
    assert scenarios(module) & {"Direct", "Indirect", "Companion", "Kind"} == {"Direct", "Indirect"}
