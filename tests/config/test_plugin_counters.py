"""What credential plugins and certificate files did, as metrics read it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from kubeloop.config import load_config
from kubeloop.config.plugins.metrics import AGES, PluginMetrics, figures, validity
from kubeloop.config.tls import CERTIFICATE_PERIOD, TlsSource
from kubeloop.meta import ConfigError
from kubeloop.timing import FakeClock
from kubeloop.transport import Transport
from tests.config.documents import V1, document, script, write
from tests.faults.server import authority

JANE = authority().issue("jane", client=True)


def test_the_validity_of_a_certificate_is_read() -> None:
    found = validity(JANE.certificate)
    assert found is not None
    start, end = found
    assert start <= datetime.now(UTC) < end
    assert validity(b"# bag attributes\n" + JANE.certificate + authority().certificate) == found


@pytest.mark.parametrize("text", [b"", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----", b"-----BEGIN CERTIFICATE-----"])
def test_a_text_that_is_no_certificate_has_no_validity(text: bytes) -> None:
    assert validity(text) is None


def test_the_first_certificate_to_expire_counts_and_a_replaced_one_by_its_age() -> None:
    class Source:
        pass

    found, source = PluginMetrics(), Source()
    assert found.soonest_expiry() is None
    held = validity(JANE.certificate)
    assert held is not None
    found.certificate(source, JANE.certificate, held[0])
    assert found.soonest_expiry() == held[1]
    found.certificate(source, None, held[0] + timedelta(seconds=700))
    assert (found.soonest_expiry(), found.ages[AGES.index(1800)], found.total_age) == (None, 1, 700)


async def test_runs_of_plugins_are_counted_by_their_outcome(tmp_path: Path) -> None:
    figures.calls.clear()
    figures.policy.clear()
    answers = {"good": f'echo \'{{"apiVersion": "{V1}", "kind": "ExecCredential", "status": {{"token": "t"}}}}\'', "bad": "exit 7"}
    registry = CollectorRegistry()
    for name in ("good", "bad", "missing"):
        if name in answers:
            script(tmp_path / name, answers[name])
        user = {"exec": {"command": f"./{name}", "apiVersion": V1, "interactiveMode": "Never"}}
        found = load_config(write(tmp_path / f"config-{name}", document({"server": "https://127.0.0.1:1"}, user)))
        async with Transport(found) as transport:
            transport.metrics(registry)
            with pytest.raises(Exception, match=r"refused|exit status|cannot be run") as raised:
                await transport.request("GET", "/x")
            assert isinstance(raised.value, ConfigError) == (name != "good")
    assert dict(figures.calls) == {(0, "no_error"): 1, (7, "plugin_execution_error"): 1, (1, "plugin_not_found_error"): 1}
    assert dict(figures.policy) == {"allowed": 3}
    text = generate_latest(registry).decode()
    assert 'rest_client_exec_plugin_call_total{call_status="plugin_execution_error",code="7"} 1.0' in text
    assert 'rest_client_exec_plugin_policy_call_total{status="allowed"} 3.0' in text
    assert "rest_client_exec_plugin_ttl_seconds " in text


async def test_looks_at_the_authority_file_are_counted_by_their_outcome(tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    file.write_bytes(authority().certificate)
    found = load_config(write(tmp_path / "config", document({"certificate-authority": "ca.crt"})))
    clock = FakeClock()
    source = TlsSource(found, clock)
    source.current()

    async def look() -> None:
        await clock.advance(CERTIFICATE_PERIOD)
        source.current()

    await look()
    file.write_bytes(b"broken")
    await look()
    file.unlink()
    await look()
    file.write_bytes(JANE.certificate)
    await look()
    assert dict(source.reloads) == {
        ("success", "unchanged"): 1,
        ("failure", "ca_parse_error"): 1,
        ("failure", "read_error"): 1,
        ("success", "updated"): 1,
    }
