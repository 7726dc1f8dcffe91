"""Asks the machine: every probe is listed here, all run side by side, and their answers become one Snapshot."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from msgspec import structs

from cudadoctor.model.fact import NOT_ASKED, Known, Missing, MissingReason, maybe
from cudadoctor.model.snapshot import Container, Driver, ErrorSeen, Host, Libraries, ProbeRun, PythonEnvironment, Snapshot, Wsl
from cudadoctor.probes.all_missing import all_missing
from cudadoctor.probes.container import read_container
from cudadoctor.probes.driver import read_driver
from cudadoctor.probes.environment import read_environment
from cudadoctor.probes.gpu_pairs import parse_pairs, with_nvlinks
from cudadoctor.probes.host import read_host
from cudadoctor.probes.host_compiler import read_host_compilers
from cudadoctor.probes.libraries import read_libraries
from cudadoctor.probes.merging import merge_driver, merge_driver_description, merge_gpus
from cudadoctor.probes.nvidia_smi import SmiAnswer, read_nvidia_smi
from cudadoctor.probes.nvml import NvmlAnswer, read_nvml
from cudadoctor.probes.python_env import ChosenPython, choose_python, site_folders
from cudadoctor.probes.runner import Probe, ProbeContext, RunningProbe, start_probes
from cudadoctor.probes.toolkit import read_toolkits
from cudadoctor.probes.torch_child import TorchChild, start_torch_child
from cudadoctor.probes.torch_files import with_code_from_files
from cudadoctor.probes.wsl import read_wsl

if TYPE_CHECKING:
    from cudadoctor.gpu.description import DriverDescription
    from cudadoctor.system import System

__all__ = [
    "PROBES",
    "Collection",
    "ProbeOptions",
    "TorchChild",
    "choose_python",
    "collect",
    "merge_driver_description",
    "recognised",
    "start_collection",
    "start_torch_child",
]


def _same(missing: Missing) -> Missing:
    return missing


PROBES = (
    Probe(
        "nvidia-smi",
        lambda system, context: read_nvidia_smi(system, context.nvidia_smi_timeout_s),
        lambda why: SmiAnswer(why, why, why, why),
    ),
    Probe("nvml", lambda system, context: read_nvml(system, context.timeout_s), lambda why: NvmlAnswer(why, why, why, why, why)),
    Probe("toolkits", lambda system, context: read_toolkits(system, context.timeout_s, context.package_folders), _same),
    Probe("host compilers", lambda system, context: read_host_compilers(system, context.timeout_s), _same),
    Probe("libraries", lambda system, context: read_libraries(system, context.package_folders()), all_missing(Libraries)),
    Probe("driver", lambda system, _: read_driver(system), all_missing(Driver)),
    Probe("host", lambda system, _: read_host(system), all_missing(Host)),
    Probe("container", lambda system, _: read_container(system), all_missing(Container)),
    Probe("wsl", lambda system, _: read_wsl(system), all_missing(Wsl)),
    Probe("environment", lambda system, context: read_environment(system, context.variable_names), _same),
)
"""The slow ones first; torch has a child of its own, which goes on to prove itself."""


INTERPRETER_START_S = 1.5
"""How long the search for pip's toolkits and libraries waits for the examined Python to say where it keeps packages."""


@dataclass(frozen=True)
class ProbeOptions:
    """What the user may choose about probing."""

    python: str = ""
    """--python: the interpreter to examine; empty for the active one."""
    timeout_s: float = 6.0
    """For each program that a probe runs, and for all probes together."""
    nvidia_smi_timeout_s: float = 3.0
    torch_child_options: tuple[str, ...] = ()
    """`--no-proofs` where torch is only to be described."""
    variable_names: frozenset[str] = field(default_factory=frozenset)
    """Names of matrices/env_vars.toml, which count as CUDA-related."""


class Collection:
    """Probes at work. First ask `machine()`, which is quick, then `complete()`, which waits for torch."""

    def __init__(self, system: System, running: Iterable[RunningProbe], torch: TorchChild, deadline: float) -> None:
        self.torch = torch
        self._system = system
        self._running = tuple(running)
        self._deadline = deadline
        self._machine: Snapshot | None = None
        self._texts: list[tuple[str, str]] = []

    def machine(self) -> Snapshot:
        """Everything but Python and torch; probes that did not answer by the deadline are missing, with that reason."""
        if self._machine is None:
            results = [probe.result(self._deadline) for probe in self._running]
            parts = {run.probe: part for part, run in results}
            self._texts = list(_machine_texts(parts))
            self._machine = _assemble(parts, tuple(run for _, run in results))
        return self._machine

    def stop(self) -> None:
        """End all that is still running: the torch child, and programs of probes that were given up or interrupted."""
        self.torch.stop()
        self._system.stop_programs()

    def without(self, slow: str) -> Snapshot:
        """The machine as all probes but one see it, for work that need not wait for that one."""
        parts = {
            probe.name: probe.unanswered(NOT_ASKED) if probe.name == slow else probe.result(self._deadline)[0]
            for probe in self._running
        }
        return _assemble(parts, ())

    def python(self, deadline: float) -> PythonEnvironment:
        """The examined Python and its torch, as far as known at `deadline` (time.monotonic()); of an image, its files."""
        if self._system.uname is None:
            from cudadoctor.probes.installed_python import describe_installed

            return with_code_from_files(self._system, describe_installed(self._system, self.torch.chosen))
        return with_code_from_files(self._system, self.torch.facts(deadline))

    def package_folders(self) -> tuple[str, ...]:
        """site-packages of the examined Python; may wait a moment for that Python's answer."""
        return _package_folders(self._system, self.torch, self.torch.chosen)

    def complete(
        self, deadline: float, as_user: DriverDescription | None = None, all_devices: DriverDescription | None = None
    ) -> Snapshot:
        """The whole snapshot: the machine, what the driver library said, Python and torch, and the errors recognised in all."""
        snapshot = self.machine()
        texts = list(self._texts)
        if as_user is not None:
            snapshot = merge_driver_description(snapshot, as_user, all_devices)
        started = time.monotonic()
        python = self.python(deadline)
        run = ProbeRun(probe="python", seconds=time.monotonic() - started, outcome=_python_outcome(python))
        texts += [(self.torch.said, "torch child"), (_torch_words(python), "torch child")]
        runs = (*snapshot.probe_runs, run)
        return structs.replace(snapshot, python=python, probe_runs=runs, errors=recognised(texts))


def start_collection(system: System, options: ProbeOptions | None = None, probes: Sequence[Probe] = PROBES) -> Collection:
    """Start the probes and the torch child; returns at once."""
    options = options if options is not None else ProbeOptions()
    chosen = _chosen_python(system, options.python)
    torch = start_torch_child(system, chosen, *options.torch_child_options)
    context = ProbeContext(
        package_folders=lambda: _package_folders(system, torch, chosen),
        timeout_s=options.timeout_s,
        nvidia_smi_timeout_s=min(options.nvidia_smi_timeout_s, options.timeout_s),
        variable_names=options.variable_names,
    )
    deadline = time.monotonic() + options.timeout_s + 0.5  # programs are stopped first, then probes given up
    return Collection(system, start_probes(probes, system, context), torch, deadline)


def _chosen_python(system: System, wanted: str) -> ChosenPython:
    if system.uname is not None:
        return choose_python(system, wanted)
    from cudadoctor.probes.installed_python import installed_prefix

    return installed_prefix(system, wanted)


def _package_folders(system: System, torch: TorchChild, chosen: ChosenPython) -> tuple[str, ...]:
    """As the interpreter itself says, else as its path suggests."""
    return torch.package_folders(time.monotonic() + INTERPRETER_START_S) or site_folders(system, chosen)


def collect(system: System, options: ProbeOptions | None = None, torch_timeout_s: float = 30.0) -> Snapshot:
    """One snapshot of the machine without proofs and without the driver library's word; the torch child is ended."""
    collection = start_collection(system, options)
    try:
        return collection.complete(time.monotonic() + torch_timeout_s)
    finally:
        collection.stop()


def recognised(texts: Iterable[tuple[str, str]]) -> tuple[ErrorSeen, ...]:
    """The errors that the table knows in texts with their sources; each kind once a source."""
    wanted = [(text, source) for text, source in texts if text.strip()]
    if not wanted:
        return ()
    from cudadoctor.readers.errors import recognise

    seen: dict[tuple[str, str, str], ErrorSeen] = {}
    for text, source in wanted:
        for error in recognise(text, source):
            seen.setdefault((error.kind, error.source, str(sorted(error.values.items()))), error)
    return tuple(seen.values())


def _assemble(parts: Mapping[str, Any], runs: tuple[ProbeRun, ...]) -> Snapshot:
    nvml, smi = parts["nvml"], parts["nvidia-smi"]
    gpus = with_nvlinks(merge_gpus(nvml.gpus, smi.gpus), nvml.link_events)
    return Snapshot(
        host=parts["host"],
        driver=merge_driver(parts["driver"], nvml, smi),
        gpus=gpus,
        gpu_pairs=parse_pairs(maybe(gpus) or (), nvml.link_events),
        toolkits=parts["toolkits"],
        host_compilers=parts["host compilers"],
        libraries=parts["libraries"],
        container=parts["container"],
        wsl=parts["wsl"],
        environment=parts["environment"],
        probe_runs=runs,
    )


def _machine_texts(parts: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """What NVML and nvidia-smi said in the way of errors."""
    yield parts["nvidia-smi"].said, "nvidia-smi"
    status = parts["nvml"].status
    if isinstance(status, Known) and status.value.code != 0:
        yield f"Failed to initialize NVML: {status.value.message}", "NVML"
    gpus = parts["nvml"].gpus
    for gpu in gpus.value if isinstance(gpus, Known) else ():
        yield gpu.error, "NVML"


def _torch_words(python: PythonEnvironment) -> str:
    """The words with which the import of torch failed."""
    imports = python.torch.value.imports if isinstance(python.torch, Known) else python.torch
    return imports.detail if isinstance(imports, Missing) and imports.reason is not MissingReason.NOT_FOUND else ""


def _python_outcome(python: PythonEnvironment) -> str:
    outcomes = {MissingReason.TIMEOUT: "timeout", MissingReason.CRASHED: "crashed"}
    imports = python.torch.value.imports if isinstance(python.torch, Known) else python.torch
    return outcomes.get(imports.reason, "ok") if isinstance(imports, Missing) else "ok"
