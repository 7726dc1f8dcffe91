"""NVML's view of one GPU while it is measured: a child that gives a line some twenty times a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cudadoctor.bench.model import BenchGpu, Phase, Sample
from cudadoctor.probes.nvml import CHILD, parse_line, pynvml_folder
from cudadoctor.process import ProgramNotFoundError

if TYPE_CHECKING:
    from cudadoctor.process import RunningProgram
    from cudadoctor.system import System

INTERVAL_S = 0.05
START_LIMIT_S = 3.0
IDLE_S = 0.4
"""How long the GPU is watched before anything of ours is started on it."""
CALMING_S = 2.0
"""NVML's utilisation looks back up to a second: load without a process may be that of a program that has just ended."""
BUSY_PERCENT = 5


@dataclass(frozen=True)
class Line:
    """One `sample` line."""

    at: float
    fields: Mapping[str, Any]

    def get(self, key: str) -> Any:
        """The value, or None where NVML gave none."""
        answer = self.fields.get(key)
        return answer.get("value") if isinstance(answer, dict) else None


class Sampler:
    """A running child; silent where NVML cannot be asked, which `because` then says."""

    def __init__(self, system: System, pci_bus_id: str) -> None:
        argv = (sys.executable, "-I", "-S", str(CHILD), pynvml_folder(), "--sample", pci_bus_id, str(INTERVAL_S))
        self.because = ""
        self._program: RunningProgram | None = None
        self._static: Mapping[str, Any] = {}
        self._lines: list[Line] = []
        self.idle_until = 0.0
        """When the watching ended (time.monotonic())."""
        try:
            self._program = system.start(argv)
        except ProgramNotFoundError as error:
            self.because = str(error)

    def watch_idle(self) -> None:
        """Look at the GPU until it is known whether others use it; sets `because` where NVML says nothing."""
        deadline = time.monotonic() + START_LIMIT_S
        while not self._lines and self._program is not None and time.monotonic() < deadline:
            if not self._read(deadline):
                break
        if not self._lines:
            self.because = self.because or "NVML did not answer"
            return
        begun = time.monotonic()
        while time.monotonic() - begun < IDLE_S or (self._just_ended() and time.monotonic() - begun < CALMING_S):
            if not self._read(time.monotonic() + 1.0):
                break
        self.idle_until = time.monotonic()

    def _just_ended(self) -> bool:
        last = self._lines[-1]
        return (last.get("utilization_percent") or 0) >= BUSY_PERCENT and not last.get("processes")

    def _read(self, deadline: float) -> bool:
        """Take one line of the child; False where there is none."""
        line = self._program.read_line(deadline) if self._program is not None else None
        if line is None:
            return False
        for event in parse_line(line):
            if event["event"] == "init":
                self.because = str(event.get("message", ""))
            elif event["event"] == "gpu":
                self._static = event.get("fields", {})
            elif event["event"] == "sample":
                self._lines.append(Line(float(event["at"]), event.get("fields", {})))
        return True

    def finish(self) -> tuple[Line, ...]:
        """End the child; all its lines."""
        if self._program is not None:
            while self._read(time.monotonic()):
                pass
            self._program.kill()
        return tuple(self._lines)

    def described(self, gpu: BenchGpu) -> BenchGpu:
        """The GPU with what NVML said once."""
        get = Line(0.0, self._static).get
        device, milliwatts, default = get("pci_device"), get("power_limit_mw"), get("power_limit_default_mw")
        memory = get("memory")
        mode = get("mig_mode")
        return BenchGpu(
            index=gpu.index,
            name=str(get("name") or gpu.name),
            pci_bus_id=gpu.pci_bus_id,
            pci_device=f"{device:04x}" if isinstance(device, int) else "",
            compute_capability=gpu.compute_capability,
            multiprocessors=gpu.multiprocessors,
            memory_total=memory[0] if memory else gpu.memory_total,
            memory_free=gpu.memory_free,
            driver_release=gpu.driver_release,
            sm_clock_max_mhz=get("sm_clock_max_mhz"),
            power_limit_w=milliwatts / 1000 if milliwatts is not None else None,
            power_limit_default_w=default / 1000 if default is not None else None,
            ecc=bool(get("ecc_mode")) if get("ecc_mode") is not None else None,
            mig=gpu.mig or bool(mode),
            pcie_generation_max=get("pcie_generation_max"),
            pcie_width_max=get("pcie_width_max"),
        )


def samples_of(lines: Sequence[Line], idle_until: float, begun: float, ended: float, own: Collection[int]) -> tuple[Sample, ...]:
    """The lines up to `ended` as samples; ours were timed from `begun` on (all time.monotonic()); `own` are our processes.

    A process that was there before ours is another's. One that came later is another's only where ours can be told apart: a
    container's numbers are not those that NVML shows.
    """
    kept = [line for line in lines if line.at <= ended]
    earlier = {pid for line in kept if line.at <= idle_until for pid in line.get("processes") or ()} - set(own)
    visible = any(set(own) & set(line.get("processes") or ()) for line in kept)

    def phase(line: Line) -> Phase:
        return Phase.IDLE if line.at <= idle_until else Phase.MEASURING if line.at >= begun else Phase.STARTING

    return tuple(_sample(line, kept[0].at, phase(line), earlier, own if visible else None) for line in kept)


def _sample(line: Line, start: float, phase: Phase, earlier: Collection[int], own: Collection[int] | None) -> Sample:
    milliwatts, listed, reasons = line.get("power_mw"), line.get("processes"), line.get("throttle_reasons")
    others = None
    if listed is not None:
        others = len(set(listed) & set(earlier)) if own is None else len(set(listed) - set(own))
    return Sample(
        at=round(line.at - start, 3),
        phase=phase,
        sm_clock_mhz=line.get("sm_clock_mhz"),
        power_w=milliwatts / 1000 if milliwatts is not None else None,
        temperature_c=line.get("temperature_c"),
        throttle_reasons=tuple(reasons) if reasons is not None else None,
        utilization_percent=line.get("utilization_percent"),
        pcie_generation=line.get("pcie_generation"),
        pcie_width=line.get("pcie_width"),
        others=others,
    )
