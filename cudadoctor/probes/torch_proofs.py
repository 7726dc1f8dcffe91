"""The proofs of layer `torch`, from the lines that the torch child prints."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from cudadoctor.model.fact import Known, Missing, MissingReason
from cudadoctor.model.proof import ApiError, Proof, ProofLayer, ProofOutcome
from cudadoctor.model.snapshot import Gpu, TorchBuild
from cudadoctor.model.versions import ComputeCapability
from cudadoctor.probes.asking import short
from cudadoctor.probes.nvml import bus_id
from cudadoctor.probes.torch_facts import torch_build

KERNELS = ("allocation", "matmul", "sdpa", "conv")
NO_GPU_WORDS = re.compile(r"No CUDA GPUs are available|no NVIDIA driver|no CUDA-capable device", re.IGNORECASE)
"""How torch says that there is no GPU to compute on, which proves nothing about torch."""


def parse_proofs(events: Sequence[Mapping[str, Any]], unsaid: Missing, gpus: Sequence[Gpu] = ()) -> tuple[Proof, ...]:
    """The proofs in the child's lines; those of a device that it was at when it died or hung are unknown or failed."""
    cuda = next((event for event in events if event["event"] == "torch_cuda"), None)
    skipped = _why_skipped(events, cuda, unsaid)
    if cuda is None or skipped is not None:
        return (skipped,) if skipped is not None else ()
    proofs = {(event["device"], event["kernel"]): event for event in events if event["event"] == "proof"}
    begun = {(event["device"], event["kernel"]) for event in events if event["event"] == "step" and "kernel" in event}
    unfinished = begun - proofs.keys()
    result = []
    for device in cuda["devices"]:
        for kernel in KERNELS:
            key = (device["index"], kernel)
            event = proofs.get(key) or _not_proven(unsaid, alone=unfinished == {key})
            result.append(_proof(event, kernel, device, gpus))
    return tuple(result)


def _why_skipped(events: Sequence[Mapping[str, Any]], cuda: Mapping[str, Any] | None, unsaid: Missing) -> Proof | None:
    """The one proof that stands for all where none could run; None where they could."""
    kinds = {event["event"]: event for event in events}
    if "torch_absent" in kinds:
        return _all(ProofOutcome.SKIPPED, "torch is not installed in the examined Python")
    if "torch_import_error" in kinds:
        return _all(ProofOutcome.FAILED, f"torch cannot be imported: {short(kinds['torch_import_error']['message'])}")
    if cuda is None:
        crashed = unsaid.reason is MissingReason.CRASHED and "torch_found" in kinds
        return _all(ProofOutcome.FAILED if crashed else ProofOutcome.UNKNOWN, unsaid.detail)
    if not cuda["is_available"]:
        nothing_to_use = torch_build(kinds["torch_imported"]) is not TorchBuild.CUDA or NO_GPU_WORDS.search(cuda["error"])
        outcome = ProofOutcome.SKIPPED if nothing_to_use else ProofOutcome.FAILED
        return _all(outcome, short(f"torch cannot use CUDA: {cuda['error']}".rstrip(": ")))
    return None


def _all(outcome: ProofOutcome, because: str) -> Proof:
    return Proof(ProofLayer.TORCH, None, "all", None, outcome, because=because)


def _not_proven(unsaid: Missing, *, alone: bool) -> Mapping[str, Any]:
    """A computation without an end: failed where the process died in it and no other was under way, else unknown."""
    crashed = alone and unsaid.reason is MissingReason.CRASHED
    return {"outcome": "failed" if crashed else "unknown", "because": unsaid.detail}


def _proof(event: Mapping[str, Any], kernel: str, device: Mapping[str, Any], gpus: Sequence[Gpu]) -> Proof:
    capability = ComputeCapability(*device["compute_capability"])
    return Proof(
        layer=ProofLayer.TORCH,
        gpu=gpu_index(device, gpus),
        kernel=kernel,
        target=str(capability.sm),
        outcome=ProofOutcome(event["outcome"]),
        error=api_error(event),
        because=short(event["because"].partition("\n")[0]) if event.get("because") else None,
        max_error=event.get("max_error"),
        tolerance=event.get("tolerance"),
        run_ms=event.get("run_ms"),
    )


def gpu_index(device: Mapping[str, Any], gpus: Sequence[Gpu]) -> int:
    """nvidia-smi's index of a device of torch: by PCI address, as CUDA counts in another order; else CUDA's own index."""
    address = bus_id(device["pci_bus_id"]) if device.get("pci_bus_id") else None
    for gpu in gpus:
        if address is not None and isinstance(gpu.pci_bus_id, Known) and gpu.pci_bus_id.value == address:
            return gpu.index
    return int(device["index"])


def api_error(event: Mapping[str, Any]) -> ApiError | None:
    """The CUDA error in the words of a failed proof; None where they are not CUDA's.

    Sample: {"message": "CUDA error: no kernel image is available for execution on the device\\nCUDA kernel errors ..."}
    """
    from cudadoctor.gpu.cu_result import RESULTS

    message = (event.get("message") or "").partition("\n")[0].removeprefix("CUDA error: ").strip()
    if not message:
        return None
    named = next(((code, name) for code, (name, text) in RESULTS.items() if code and text in message), None)
    code = event.get("code") or (named[0] if named else None)
    if code is None:
        return None
    return ApiError(code, RESULTS[code][0] if code in RESULTS else "", message)
