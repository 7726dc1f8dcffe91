"""NVML's view of the driver and the GPUs, asked through pynvml in a child process."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cudadoctor.model.fact import NOT_ASKED, Fact, Known, Missing, MissingReason
from cudadoctor.model.snapshot import ApiStatus, ComputeMode, DeviceNode, Gpu
from cudadoctor.model.versions import ComputeCapability, CudaVersion, DriverRelease, VersionError
from cudadoctor.probes.asking import folder_names, not_applicable, not_found, not_started, short, unsuccessful
from cudadoctor.process import ProgramNotFoundError

if TYPE_CHECKING:
    from cudadoctor.system import RunningProgram, System

T = TypeVar("T")

SOURCE = "NVML"
CHILD = Path(__file__).with_name("_nvml_child.py")
LIBRARY = "libnvidia-ml.so.1"
WINDOWS_LIBRARIES = (r"C:\Windows\System32\nvml.dll", r"C:\Program Files\NVIDIA Corporation\NVSMI\nvml.dll")
NODES_OF_CUDA = re.compile(r"^nvidia(?:\d+|ctl|-uvm)\Z")
"""Nodes that CUDA opens; nvidia-modeset belongs to graphics, and containers rightly refuse it."""
NOT_SUPPORTED = frozenset({3, 13})
"""nvml.h: NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_FUNCTION_NOT_FOUND."""
NO_PERMISSION = 4
COMPUTE_MODES = {
    0: ComputeMode.DEFAULT,
    1: ComputeMode.EXCLUSIVE_THREAD,
    2: ComputeMode.PROHIBITED,
    3: ComputeMode.EXCLUSIVE_PROCESS,
}
"""nvml.h, nvmlComputeMode_t."""
DRIVER_MODELS = {0: "WDDM", 1: "TCC", 2: "MCDM"}
"""nvml.h, nvmlDriverModel_t."""


@dataclass(frozen=True)
class NvmlAnswer:
    """What NVML said; each part missing with the reason where it said nothing."""

    status: Fact[ApiStatus]
    driver_release: Fact[DriverRelease] = NOT_ASKED
    driver_cuda_version: Fact[CudaVersion] = NOT_ASKED
    gpus: Fact[tuple[Gpu, ...]] = NOT_ASKED
    fabric: Fact[str] = NOT_ASKED
    link_events: tuple[Mapping[str, Any], ...] = ()
    """The child's lines about links and pairs, for `gpu_pairs`."""
    library_file: str = ""
    """The libnvidia-ml that the loader picks, links resolved."""
    nodes: tuple[DeviceNode, ...] = ()
    """Device nodes that could not be opened, with the system's words."""

    @classmethod
    def nothing(cls, why: Missing, nodes: tuple[DeviceNode, ...] = ()) -> NvmlAnswer:
        """The answer of one that did not answer."""
        return cls(why, why, why, why, why, nodes=nodes)


def read_nvml(system: System, timeout: float) -> NvmlAnswer:
    """Ask NVML; no child is started where neither the library nor a device node exists."""
    library = find_library(system)
    nodes = _nodes(system)
    absent = _absent(system, library)
    if absent is not None and not nodes:
        return NvmlAnswer.nothing(absent)
    folder = "" if absent is not None else pynvml_folder()
    argv = (sys.executable, "-I", "-S", str(CHILD), folder, *nodes)
    try:
        program = system.start(argv)
    except ProgramNotFoundError as error:
        return NvmlAnswer.nothing(not_started(error, SOURCE))
    events, failure = collect_events(program, timeout, SOURCE)
    answer = parse_events(events, failure)
    if absent is not None:
        return NvmlAnswer.nothing(absent, answer.nodes)
    return NvmlAnswer(**{**vars(answer), "library_file": library})


def find_library(system: System) -> str:
    """The real path of the NVML library that a program would load; empty where there is none."""
    if system.platform == "win32":
        return next((path for path in WINDOWS_LIBRARIES if system.exists(path)), "")
    from cudadoctor.binary.loader import Resolved
    from cudadoctor.probes.library_files import loader_for

    found = loader_for(system).find(LIBRARY)
    return found.real_path if isinstance(found, Resolved) else ""


def collect_events(program: RunningProgram, timeout: float, source: str) -> tuple[tuple[dict[str, Any], ...], Missing | None]:
    """The JSON lines of a child, and why it did not come to its end where it did not."""
    deadline = time.monotonic() + timeout
    lines: list[dict[str, Any]] = []
    while (line := program.read_line(deadline)) is not None:
        lines += parse_line(line)
    completed = program.finish(deadline)
    return tuple(lines), unsuccessful(replace(completed, stdout=""), timeout, source)


def parse_line(line: str) -> Iterator[dict[str, Any]]:
    """The event of one line of a child's output; nothing for a line that is none.

    Sample: {"event": "init", "code": 18, "name": "NVML_ERROR_LIB_RM_VERSION_MISMATCH", "message": "Driver/library ..."}
    """
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return
    if isinstance(event, dict) and isinstance(event.get("event"), str):
        yield event


def parse_events(events: tuple[dict[str, Any], ...], failure: Missing | None) -> NvmlAnswer:
    """The facts in the child's lines; `failure` stands for all that it did not come to say."""
    unsaid = failure or Missing(MissingReason.FAILED, "the NVML child said nothing about it", SOURCE)
    by_kind = {event["event"]: event for event in events}
    nodes = tuple(_unusable_node(event) for event in events if event["event"] == "node" and event.get("error"))
    if "init" not in by_kind:
        return NvmlAnswer.nothing(unsaid, nodes)
    init = by_kind["init"]
    status = ApiStatus(code=init["code"], name=init["name"], message=init["message"])
    if status.code != 0:
        refused = Missing(MissingReason.FAILED, f"nvmlInit: {status.message}", SOURCE)
        return NvmlAnswer(Known(status, SOURCE), refused, refused, refused, refused, nodes=nodes)
    system = by_kind.get("system", {})
    gpu_events = [event for event in events if event["event"] == "gpu"]
    return NvmlAnswer(
        status=Known(status, SOURCE),
        driver_release=nvml_fact(system.get("driver_release"), DriverRelease.parse, unsaid),
        driver_cuda_version=nvml_fact(system.get("driver_cuda_version"), CudaVersion.from_int, unsaid),
        gpus=_gpus(by_kind.get("count"), gpu_events, unsaid),
        fabric=nvml_fact(gpu_events[0]["fields"].get("fabric"), str, unsaid) if gpu_events else unsaid,
        link_events=tuple(event for event in events if event["event"] in {"nvlinks", "pair"}),
        nodes=nodes,
    )


def _gpus(count: Mapping[str, Any] | None, events: list[dict[str, Any]], unsaid: Missing) -> Fact[tuple[Gpu, ...]]:
    number = nvml_fact(count, int, unsaid)
    if isinstance(number, Missing):
        return number
    described = {event["index"]: parse_gpu(event) for event in events}
    silent = (index for index in range(number.value) if index not in described)
    gpus = {**described, **{index: Gpu(index=index, error=unsaid.detail) for index in silent}}
    return Known(tuple(gpus[index] for index in sorted(gpus)), SOURCE)


def parse_gpu(event: Mapping[str, Any]) -> Gpu:
    """One GPU of the child's `gpu` line."""
    fields = event["fields"]
    error = event.get("handle_error", {}).get("message", "")
    unsaid = Missing(MissingReason.FAILED, error or "NVML was not asked", SOURCE)

    def fact(key: str, convert: Callable[[Any], T]) -> Fact[T]:
        return nvml_fact(fields.get(key), convert, unsaid)

    return Gpu(
        index=event["index"],
        name=fact("name", str),
        compute_capability=fact("compute_capability", lambda pair: ComputeCapability(*pair)),
        uuid=fact("uuid", str),
        pci_bus_id=fact("pci_bus_id", bus_id),
        memory_total_bytes=fact("memory", lambda pair: int(pair[0])),
        memory_used_bytes=fact("memory", lambda pair: int(pair[1])),
        compute_process_count=fact("compute_process_count", int),
        mig_enabled=fact("mig_mode", bool),
        mig_devices=fact("mig_devices", tuple),
        compute_mode=fact("compute_mode", COMPUTE_MODES.__getitem__),
        persistence=fact("persistence", bool),
        driver_model=fact("driver_model", DRIVER_MODELS.__getitem__),
        ecc_enabled=fact("ecc_mode", bool),
        ecc_uncorrected=fact("ecc_uncorrected", int),
        pcie_generation=fact("pcie_generation", int),
        pcie_generation_max=fact("pcie_generation_max", int),
        pcie_width=fact("pcie_width", int),
        pcie_width_max=fact("pcie_width_max", int),
        sm_clock_mhz=fact("sm_clock_mhz", int),
        sm_clock_max_mhz=fact("sm_clock_max_mhz", int),
        throttle_reasons=fact("throttle_reasons", tuple),
        temperature_c=fact("temperature_c", int),
        power_w=fact("power_mw", lambda milliwatts: milliwatts / 1000),
        power_limit_w=fact("power_limit_mw", lambda milliwatts: milliwatts / 1000),
        utilization_percent=fact("utilization_percent", int),
        error=error,
    )


def bus_id(text: str) -> str:
    """A PCI address as sysfs writes it, `0000:01:00.0`: NVML writes eight digits of domain, and capitals."""
    domain, _, rest = text.strip().lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}" if rest.count(":") == 1 else f"0000:{text.strip().lower()}"


def nvml_fact(answer: Mapping[str, Any] | None, convert: Callable[[Any], T], unsaid: Missing) -> Fact[T]:
    """What the child's answer to one question means; `unsaid` where there is no answer."""
    if answer is None:
        return unsaid
    if "value" not in answer:
        return _refusal(answer["error"])
    try:
        return Known(convert(answer["value"]), SOURCE)
    except (VersionError, ValueError, TypeError, KeyError, IndexError) as error:
        return Missing(MissingReason.PARSE_ERROR, f"NVML gave {answer['value']!r:.80}: {error}", SOURCE)


def _refusal(error: Mapping[str, Any]) -> Missing:
    if error["code"] in NOT_SUPPORTED:
        return Missing(MissingReason.NOT_SUPPORTED, error["message"], SOURCE)
    reason = MissingReason.PERMISSION_DENIED if error["code"] == NO_PERMISSION else MissingReason.FAILED
    return Missing(reason, short(error["message"]), SOURCE)


def _unusable_node(event: Mapping[str, Any]) -> DeviceNode:
    return DeviceNode(path=event["path"], accessible=False, detail=event["message"])


def _nodes(system: System) -> tuple[str, ...]:
    """NVIDIA's device nodes; none for an unpacked image, whose nodes belong to nobody."""
    if system.platform != "linux" or system.uname is None:
        return ()
    return tuple(f"/dev/{name}" for name in folder_names(system, "/dev") if NODES_OF_CUDA.match(name))


def _absent(system: System, library: str) -> Missing | None:
    """Why NVML cannot be asked at all."""
    if system.platform == "darwin":
        return not_applicable("CUDA does not exist on this platform", SOURCE)
    if system.uname is None:
        return not_applicable("the machine of these files is not running", SOURCE)
    if not library:
        name = "nvml.dll" if system.platform == "win32" else LIBRARY
        return not_found(f"{name} is not where the loader looks", SOURCE)
    if not pynvml_folder():
        return not_found("the Python package nvidia-ml-py is not installed beside cudadoctor", SOURCE)
    return None


def pynvml_folder() -> str:
    """Where our own Python would import pynvml from; found without importing it."""
    spec = find_spec("pynvml")
    return str(Path(spec.origin).parent) if spec is not None and spec.origin else ""
