"""The server dials loopback addresses only for users' configurations, unless its policy allows all addresses."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.reverseproxy.egress_policy import DestinationNotAllowed, EgressPolicy, is_loopback


@pytest.mark.parametrize(
    ("address", "near"),
    [
        pytest.param("127.0.0.1", True, id="loopback"),
        pytest.param("127.8.9.10", True, id="all of 127.0.0.0/8 is loopback"),
        pytest.param("::1", True, id="loopback of version 6"),
        pytest.param("::ffff:127.0.0.1", True, id="loopback of version 4, written in version 6"),
        pytest.param("::ffff:10.0.0.1", False, id="another of version 4, written in version 6"),
        pytest.param("0.0.0.0", False, id="the unspecified address, which a kernel takes for loopback"),
        pytest.param("::", False, id="the unspecified address of version 6"),
        pytest.param("10.0.0.1", False, id="a private network"),
        pytest.param("169.254.169.254", False, id="a cloud's metadata"),
        pytest.param("fe80::1%eth0", False, id="the link"),
    ],
)
async def test_an_address_is_within_reach_if_it_is_loopback(address: str, near: bool) -> None:
    assert is_loopback(address) is near
    if near:
        assert await EgressPolicy().addresses(address) == [address]
    else:
        with pytest.raises(DestinationNotAllowed, match="--allow-remote-backends"):
            await EgressPolicy().open(address, 1, None, address)


async def test_a_name_counts_for_the_addresses_it_has() -> None:
    assert "127.0.0.1" in await EgressPolicy().addresses("localhost")


@pytest.mark.parametrize("anywhere", [False, True])
async def test_an_allowed_destination_is_dialled(anywhere: bool) -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        wire = await EgressPolicy(anywhere=anywhere).open("localhost", port, None, "")
        wire.abort()
        await wire.wait_closed()


async def test_a_refused_connection_is_an_error_of_the_system() -> None:
    with pytest.raises(ConnectionRefusedError):
        await EgressPolicy().open("127.0.0.1", 1, None, "")
