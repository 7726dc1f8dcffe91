"""Torch's facts, from the lines that its child prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs

from cudadoctor.model.fact import Fact, Known, Missing, MissingReason
from cudadoctor.model.snapshot import Torch, TorchBuild, TorchDevice
from cudadoctor.model.versions import ComputeCapability, CudaVersion, DottedVersion, SmTarget, VersionError
from cudadoctor.probes.all_missing import all_missing
from cudadoctor.probes.asking import not_applicable, not_found, parsed, short

SOURCE = "torch child"


def event_words(event: Mapping[str, Any]) -> tuple[str, ...]:
    """The error texts in one line of the child."""
    texts = (event.get("message"), event.get("error"), *event.get("warnings", ()))
    return tuple(text for text in texts if text)


def parse_torch(events: Mapping[str, Mapping[str, Any]], unsaid: Missing) -> Fact[Torch]:
    """What is known of torch; missing only where it is not installed or Python itself does not answer.

    Where its import fails, crashes or hangs, `imports` says so, and what its version file says is known all the same.
    Sample: {"event": "torch_imported", "version": "2.5.1+cu124", "cuda": "12.4", "hip": null, "arch_list": ["sm_50", "sm_90"]}
    """
    if "torch_absent" in events and events["torch_absent"].get("unreadable"):
        folder = events["torch_absent"]["unreadable"]
        return Missing(MissingReason.PERMISSION_DENIED, f"{folder} cannot be looked into; torch may be there", SOURCE)
    if "torch_absent" in events:
        return not_found(events["torch_absent"]["message"] or "torch is not installed in this Python", SOURCE)
    if "torch_found" not in events:
        return unsaid
    found = events["torch_found"]
    if "torch_imported" in events:
        return Known(_imported(events["torch_imported"], events.get("torch_cuda"), found["location"], unsaid), SOURCE)
    failure = _import_error(events["torch_import_error"]) if "torch_import_error" in events else unsaid
    return Known(torch_from_files(found, failure), SOURCE)


def _import_error(error: Mapping[str, Any]) -> Missing:
    return Missing(MissingReason.FAILED, f"{error['kind']}: {short(error['message'])}", SOURCE)


def torch_from_files(found: Mapping[str, Any], failure: Missing) -> Torch:
    """What the files of a torch say that was not imported; `failure` says why not, and stands for the rest."""
    file = f"{found['location']}/version.py"
    told = found["version"] is not None
    no_cuda = not_applicable("torch was not built for CUDA", file)
    known_cuda = parsed(CudaVersion.parse, found["cuda"], file) if found["cuda"] else no_cuda
    return structs.replace(
        all_missing(Torch)(failure),
        torch_version=Known(found["version"], file) if told else failure,
        build=Known(torch_build(found), file) if told else failure,
        torch_cuda_version=known_cuda if told else failure,
        location=Known(found["location"], SOURCE),
    )


def _imported(imported: Mapping[str, Any], cuda: Mapping[str, Any] | None, location: str, unsaid: Missing) -> Torch:
    build = torch_build(imported)
    no_cuda = not_applicable(f"torch was built for {build.value}", SOURCE)
    for_cuda = build is TorchBuild.CUDA
    return Torch(
        imports=Known(True, SOURCE),
        torch_version=Known(imported["version"], SOURCE),
        build=Known(build, SOURCE),
        torch_cuda_version=parsed(CudaVersion.parse, imported["cuda"], SOURCE) if imported["cuda"] else no_cuda,
        arch_list=_targets(imported["arch_list"]) if for_cuda else no_cuda,
        is_available=_or_missing(cuda, "is_available", unsaid),
        cuda_error=_cuda_error(cuda, unsaid),
        devices=unsaid if cuda is None else Known(tuple(torch_device(device) for device in cuda["devices"]), SOURCE),
        cudnn_version=_cudnn(cuda, unsaid) if for_cuda else no_cuda,
        nccl_version=_nccl(cuda, unsaid) if for_cuda else no_cuda,
        cxx11_abi=_or_missing(imported, "cxx11_abi", unsaid),
        mapped_libraries=() if cuda is None else tuple(cuda["libraries"]),
        location=Known(location, SOURCE),
    )


def torch_build(imported: Mapping[str, Any]) -> TorchBuild:
    """What the binary was built for."""
    for key, build in (("cuda", TorchBuild.CUDA), ("hip", TorchBuild.ROCM), ("xpu", TorchBuild.XPU)):
        if imported.get(key):
            return build
    return TorchBuild.CPU


def torch_device(device: Mapping[str, Any]) -> TorchDevice:
    """A device as torch lists it."""
    return TorchDevice(
        index=device["index"], name=device["name"], compute_capability=ComputeCapability(*device["compute_capability"])
    )


def cudnn_version(number: int) -> DottedVersion:
    """9.1.0 for 90100, 8.9.7 for 8907 (cudnn_version.h: from 9 on the major counts ten thousands)."""
    major, rest = divmod(number, 10_000) if number >= 90_000 else divmod(number, 1000)
    return DottedVersion.parse(f"{major}.{rest // 100}.{rest % 100}")


def _or_missing(event: Mapping[str, Any] | None, key: str, unsaid: Missing) -> Fact[bool]:
    if event is None:
        return unsaid
    return Known(bool(event[key]), SOURCE) if event[key] is not None else not_found("this torch does not say", SOURCE)


def _cuda_error(cuda: Mapping[str, Any] | None, unsaid: Missing) -> Fact[str]:
    if cuda is None:
        return unsaid
    words = "; ".join(dict.fromkeys(event_words(cuda)))
    return Known(words, SOURCE) if words else not_applicable("CUDA initialised without complaint", SOURCE)


def _targets(names: Sequence[str] | None) -> Fact[tuple[SmTarget, ...]]:
    if names is None:
        return not_found("this torch does not list its targets", SOURCE)
    try:
        return Known(tuple(SmTarget.parse(name) for name in names), SOURCE)
    except VersionError as error:
        return Missing(MissingReason.PARSE_ERROR, str(error), SOURCE)


def _cudnn(cuda: Mapping[str, Any] | None, unsaid: Missing) -> Fact[DottedVersion]:
    if cuda is None:
        return unsaid
    number = cuda["cudnn"]
    return Known(cudnn_version(number), SOURCE) if isinstance(number, int) else not_found("torch finds no cuDNN", SOURCE)


def _nccl(cuda: Mapping[str, Any] | None, unsaid: Missing) -> Fact[DottedVersion]:
    if cuda is None:
        return unsaid
    return parsed(DottedVersion.parse, cuda["nccl"], SOURCE) if cuda["nccl"] else not_found("torch has no NCCL", SOURCE)
