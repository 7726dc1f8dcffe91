"""What lies between every two GPUs, out of what NVML and the driver library said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

from msgspec import structs

from cudadoctor.model.fact import NOT_ASKED, Fact, Known, Missing, MissingReason
from cudadoctor.model.snapshot import Gpu, GpuPair
from cudadoctor.probes.nvml import SOURCE, bus_id, nvml_fact

if TYPE_CHECKING:
    from cudadoctor.gpu.description import DriverDescription, PeerDescription

DRIVER_SOURCE = "libcuda"
TOPOLOGY = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
"""nvml.h, nvmlGpuTopologyLevel_t, in the words of `nvidia-smi topo -m`; 0 is one board."""
PEER_STATUS = {
    0: "OK",
    1: "chipset not supported",
    2: "GPU not supported",
    3: "topology not supported",
    4: "disabled by a registry key",
    5: "not supported",
    6: "unknown",
}
"""nvml.h, nvmlGpuP2PStatus_t."""
NVLINK_VERSIONS = {1: "1.0", 2: "2.0", 3: "2.2", 4: "3.0", 5: "3.1", 6: "4.0", 7: "5.0", 8: "6.0"}
"""nvml.h, NVML_NVLINK_VERSION_*."""


def with_nvlinks(gpus: Fact[tuple[Gpu, ...]], events: Sequence[Mapping[str, Any]]) -> Fact[tuple[Gpu, ...]]:
    """The GPUs with what the NVML child's `nvlinks` lines say of their links."""
    answers = {event["index"]: event for event in events if event["event"] == "nvlinks"}
    if isinstance(gpus, Missing) or not answers:
        return gpus
    linked = tuple(_with_nvlinks(gpu, answers[gpu.index]) if gpu.index in answers else gpu for gpu in gpus.value)
    return structs.replace(gpus, value=linked)


def _with_nvlinks(gpu: Gpu, answer: Mapping[str, Any]) -> Gpu:
    return structs.replace(
        gpu,
        nvlinks_active=nvml_fact(answer, lambda value: len(value["active"]), NOT_ASKED),
        nvlinks_total=nvml_fact(answer, lambda value: int(value["total"]), NOT_ASKED),
        nvlink_version=nvml_fact(answer, _version, NOT_ASKED) if _active(answer) else NOT_ASKED,
    )


def _active(answer: Mapping[str, Any]) -> list[list[Any]]:
    return list(answer.get("value", {}).get("active", ()))


def _version(value: Mapping[str, Any]) -> str:
    number = value["active"][0][0]
    return NVLINK_VERSIONS.get(number, f"unknown ({number})")


def parse_pairs(gpus: Sequence[Gpu], events: Sequence[Mapping[str, Any]]) -> Fact[tuple[GpuPair, ...]]:
    """Every two of the GPUs, by the NVML child's `pair` and `nvlinks` lines; not asked where there is one GPU."""
    if len(gpus) < 2:
        return NOT_ASKED
    unsaid = Missing(MissingReason.FAILED, "NVML did not say", SOURCE)
    links = {event["index"]: event for event in events if event["event"] == "nvlinks"}
    said = {(event["first"], event["second"]): event["fields"] for event in events if event["event"] == "pair"}
    pairs = []
    for one, other in combinations(gpus, 2):
        fields = said.get((one.index, other.index), {})
        pairs.append(
            GpuPair(
                first=one.index,
                second=other.index,
                topology=nvml_fact(fields.get("topology"), TOPOLOGY.__getitem__, unsaid),
                peer_status=nvml_fact(fields.get("peer_status"), PEER_STATUS.__getitem__, unsaid),
                nvlinks=_nvlinks(one, other, links, unsaid),
            )
        )
    return Known(tuple(pairs), SOURCE)


def _nvlinks(one: Gpu, other: Gpu, links: Mapping[int, Mapping[str, Any]], unsaid: Missing) -> Fact[int]:
    """Links that lead straight from one to the other, else those of the one with fewer links to switches."""
    ends = [links.get(gpu.index) for gpu in (one, other)]
    for end in ends:
        if end is None or "value" not in end:
            return _none_without_nvlink(nvml_fact(end, int, unsaid))
    address = other.pci_bus_id.value if isinstance(other.pci_bus_id, Known) else None
    straight = sum(remote is not None and bus_id(remote) == address for _, remote in _active(ends[0] or {}))
    to_switches = min(sum(remote is None for _, remote in _active(end or {})) for end in ends)
    return Known(straight or to_switches, SOURCE)


def _none_without_nvlink(fact: Fact[int]) -> Fact[int]:
    """A GPU that has no NVLink has none to another; any other refusal stays one."""
    if isinstance(fact, Missing) and fact.reason is MissingReason.NOT_SUPPORTED:
        return Known(0, SOURCE)
    return fact


def with_access(
    pairs: Fact[tuple[GpuPair, ...]], gpus: Sequence[Gpu], numbers: Mapping[int, int], driver: DriverDescription
) -> Fact[tuple[GpuPair, ...]]:
    """The pairs with the driver library's word; `numbers` maps CUDA's index of a device to the report's."""
    if len(gpus) < 2:
        return pairs
    said: dict[tuple[int, int], list[PeerDescription]] = {}
    for peer in driver.peers:
        key = sorted((numbers.get(peer.device, peer.device), numbers.get(peer.peer, peer.peer)))
        said.setdefault((key[0], key[1]), []).append(peer)
    words = driver.peers_failure or "the driver library was not asked about these two"
    unsaid = Missing(MissingReason.FAILED, words, DRIVER_SOURCE)
    known = pairs.value if isinstance(pairs, Known) else tuple(_bare(one, other) for one, other in combinations(gpus, 2))
    both = tuple(_with_access(pair, said.get((pair.first, pair.second), []), unsaid) for pair in known)
    return Known(both, pairs.source if isinstance(pairs, Known) else DRIVER_SOURCE)


def _bare(one: Gpu, other: Gpu) -> GpuPair:
    return GpuPair(first=one.index, second=other.index)


def _with_access(pair: GpuPair, ways: Sequence[PeerDescription], unsaid: Missing) -> GpuPair:
    if len(ways) != 2:
        return structs.replace(pair, access=unsaid, native_atomics=unsaid)
    return structs.replace(
        pair,
        access=Known(all(way.access for way in ways), DRIVER_SOURCE),
        native_atomics=Known(all(way.native_atomics for way in ways), DRIVER_SOURCE),
    )
