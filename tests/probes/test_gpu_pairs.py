"""What lies between GPUs, from the NVML child's lines and the driver library's words."""

from __future__ import annotations

from typing import Any

import pytest

from cudadoctor.gpu.description import DriverDescription, PeerDescription
from cudadoctor.model.fact import NOT_ASKED, Fact, Known, Missing, maybe
from cudadoctor.model.snapshot import Gpu, GpuPair
from cudadoctor.probes.gpu_pairs import parse_pairs, with_access, with_nvlinks

REFUSED = {"error": {"code": 3, "name": "NVML_ERROR_NOT_SUPPORTED", "message": "Not Supported"}}
NO_PERMISSION = {"error": {"code": 4, "name": "NVML_ERROR_NO_PERMISSION", "message": "Insufficient Permissions"}}


def gpus(count: int) -> tuple[Gpu, ...]:
    return tuple(Gpu(index=index, pci_bus_id=Known(f"0000:0{index + 1}:00.0", "NVML")) for index in range(count))


def nvlinks(index: int, active: list[list[Any]], total: int = 18) -> dict[str, Any]:
    return {"event": "nvlinks", "index": index, "value": {"active": active, "total": total}}


def pair(first: int, second: int, topology: object = 10, status: object = 0) -> dict[str, Any]:
    fields = {"topology": {"value": topology}, "peer_status": {"value": status}}
    return {"event": "pair", "first": first, "second": second, "fields": fields}


def only(pairs: Fact[tuple[GpuPair, ...]]) -> GpuPair:
    (found,) = maybe(pairs) or ()
    return found


def test_one_gpu_has_no_pairs() -> None:
    assert parse_pairs(gpus(1), ()) is NOT_ASKED


def test_links_to_switches_count_for_the_gpu_with_fewer() -> None:
    events = (nvlinks(0, [[6, None]] * 18), nvlinks(1, [[6, None]] * 16), pair(0, 1, 50))
    found = only(parse_pairs(gpus(2), events))
    assert (maybe(found.nvlinks), maybe(found.topology), maybe(found.peer_status)) == (16, "SYS", "OK")
    first, second = maybe(with_nvlinks(Known(gpus(2), "NVML"), events)) or ()
    assert (maybe(first.nvlink_version), maybe(first.nvlinks_active), maybe(second.nvlinks_active)) == ("4.0", 18, 16)


def test_straight_links_count_for_their_pair_only() -> None:
    to_second, to_first = "00000000:02:00.0", "00000000:01:00.0"
    events = (nvlinks(0, [[4, to_second]] * 4, 4), nvlinks(1, [[4, to_first]] * 4, 4), nvlinks(2, [], 4))
    counts = {(each.first, each.second): maybe(each.nvlinks) for each in maybe(parse_pairs(gpus(3), events)) or ()}
    assert counts == {(0, 1): 4, (0, 2): 0, (1, 2): 0}


def test_without_nvlink_there_are_none_and_a_refusal_stays_one() -> None:
    without = tuple({"event": "nvlinks", "index": index, **REFUSED} for index in range(2))
    assert maybe(only(parse_pairs(gpus(2), without)).nvlinks) == 0
    refused = tuple({"event": "nvlinks", "index": index, **NO_PERMISSION} for index in range(2))
    assert isinstance(only(parse_pairs(gpus(2), refused)).nvlinks, Missing)


@pytest.mark.parametrize(("status", "words"), [(1, "chipset not supported"), (4, "disabled by a registry key")])
def test_nvmls_reason_is_in_words(status: int, words: str) -> None:
    assert maybe(only(parse_pairs(gpus(2), (pair(0, 1, 10, status),))).peer_status) == words


def test_what_nvml_did_not_say_or_says_in_new_numbers_is_missing() -> None:
    found = only(parse_pairs(gpus(2), (pair(0, 1, 77, 99),)))
    assert isinstance(found.topology, Missing) and isinstance(found.peer_status, Missing)
    assert isinstance(only(parse_pairs(gpus(2), ())).nvlinks, Missing)


def peers(*ways: tuple[int, int, bool]) -> DriverDescription:
    return DriverDescription(None, peers=tuple(PeerDescription(a, b, access, access) for a, b, access in ways))


def test_access_needs_both_directions_and_the_reports_numbers() -> None:
    both = with_access(NOT_ASKED, gpus(2), {0: 1, 1: 0}, peers((0, 1, True), (1, 0, True)))
    assert maybe(only(both).access) is True
    one = with_access(NOT_ASKED, gpus(2), {}, peers((0, 1, True), (1, 0, False)))
    assert maybe(only(one).access) is False
    unasked = with_access(NOT_ASKED, gpus(2), {}, DriverDescription(None, peers_failure="gave no answer within 5.0 s"))
    assert isinstance(only(unasked).access, Missing)
    assert with_access(NOT_ASKED, gpus(1), {}, peers()) is NOT_ASKED
