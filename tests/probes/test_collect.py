from __future__ import annotations

import importlib
import pkgutil
import resource
import threading
import time
from pathlib import Path

import pytest

import cudadoctor.probes as probes
from cudadoctor.gpu.driver_session import describe_driver
from cudadoctor.model.codec import from_json, to_json
from cudadoctor.model.fact import Missing, MissingReason, known, maybe
from cudadoctor.model.proof import Proof, ProofOutcome
from cudadoctor.model.snapshot import Host, Snapshot
from cudadoctor.probes import PROBES, ProbeOptions, collect, recognised, start_collection
from cudadoctor.probes.all_missing import all_missing
from cudadoctor.probes.runner import Probe, ProbeContext, start_probes
from cudadoctor.system import RealSystem, System
from tests.fakes.fakebin import calls
from tests.fakes.machines import MACHINES, Machine, build_machine
from tests.fakes.roots import linux

CONTEXT = ProbeContext(lambda: (), 5, 5, frozenset())


@pytest.fixture
def empty(tmp_path: Path) -> System:
    return linux(tmp_path)


def examine(machine: Machine) -> tuple[Snapshot, tuple[Proof, ...]]:
    """The snapshot and torch's proofs, as `check` collects them."""
    collection = start_collection(RealSystem(machine.env))
    try:
        deadline = time.monotonic() + 30
        snapshot = collection.complete(deadline, describe_driver(machine.env))
        return snapshot, collection.torch.proofs(deadline, maybe(snapshot.gpus) or ())
    finally:
        collection.stop()


def test_every_module_of_a_subject_is_among_the_probes() -> None:
    used = {probe.read.__code__.co_names for probe in PROBES}
    readers = {name for names in used for name in names if name.startswith("read_")}
    for module in pkgutil.iter_modules(probes.__path__):
        if module.name.startswith("_"):
            continue
        own = importlib.import_module(f"cudadoctor.probes.{module.name}")
        offered = {f"read_{module.name}", f"read_{module.name}s"} & set(vars(own))
        assert offered <= readers, f"{module.name} is not in PROBES"


def test_a_hung_probe_costs_only_its_own_facts(empty: System) -> None:
    forever = threading.Event()
    hanging = Probe("hanging", lambda system, context: forever.wait(), all_missing(Host))
    healthy = Probe("healthy", lambda system, context: "ok", all_missing(Host))
    slow, quick = start_probes((hanging, healthy), empty, CONTEXT)
    part, run = slow.result(time.monotonic() + 0.2)
    forever.set()
    assert run.outcome == "timeout"
    assert isinstance(part.os_name, Missing)
    assert part.os_name.reason is MissingReason.TIMEOUT
    assert quick.result(time.monotonic() + 5)[0] == "ok"


def test_a_crashed_probe_is_reported_and_costs_only_its_own_facts(empty: System) -> None:
    def crash(system: System, context: ProbeContext) -> Host:
        raise KeyError("oops")

    (running,) = start_probes((Probe("crashing", crash, all_missing(Host)),), empty, CONTEXT)
    part, run = running.result(time.monotonic() + 5)
    assert (run.outcome, run.detail) == ("crashed", "KeyError: 'oops'")
    assert part.os_name == Missing(MissingReason.FAILED, "the probe crashed: KeyError: 'oops'", "crashing")


def test_a_probe_that_the_system_refuses_something_did_not_crash(empty: System) -> None:
    def open_files_until_refused(system: System, context: ProbeContext) -> Host:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            Path(__file__).read_text()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        raise AssertionError("the limit did not hold")

    (running,) = start_probes((Probe("limited", open_files_until_refused, all_missing(Host)),), empty, CONTEXT)
    part, run = running.result(time.monotonic() + 5)
    assert run.outcome == "refused"
    assert isinstance(part.os_name, Missing)
    assert part.os_name.detail.startswith("the system refused what the probe needs: [Errno 24] Too many open files")


def test_an_empty_machine_gives_a_complete_snapshot_of_reasons(tmp_path: Path) -> None:
    snapshot = collect(linux(tmp_path), ProbeOptions(python="/nowhere"), 10)
    assert isinstance(snapshot.gpus, Missing)
    assert snapshot.gpus.reason is MissingReason.NOT_FOUND
    assert known(snapshot.toolkits) == ()
    assert {run.outcome for run in snapshot.probe_runs} == {"ok"}
    assert {run.probe for run in snapshot.probe_runs} == {*(probe.name for probe in PROBES), "python"}
    assert from_json(to_json(snapshot), Snapshot) == snapshot


def test_texts_are_recognised_once() -> None:
    words = "Failed to initialize NVML: Driver/library version mismatch"
    seen = recognised([(words, "NVML"), (words, "NVML"), ("", "x"), ("all is well", "y")])
    assert len(seen) == 1
    assert seen[0].source == "NVML"


@pytest.mark.parametrize("name", list(MACHINES))
def test_the_machines_of_the_contract_are_seen_as_they_are(tmp_path: Path, name: str) -> None:
    spec, machine = MACHINES[name], build_machine(name, tmp_path)
    snapshot, proofs = examine(machine)
    assert from_json(to_json(snapshot), Snapshot) == snapshot
    assert known(snapshot.python.executable) == str(machine.python)
    assert spec.torch.version in {package.package_version for package in known(snapshot.python.packages)}
    toolkits = {known(kit.toolkit_version).release for kit in known(snapshot.toolkits) if "PATH" in kit.found_by}
    assert toolkits == ({spec.toolkit[0]} if spec.toolkit is not None else set())
    if name != "F":
        (gpu,) = known(snapshot.gpus)
        assert known(gpu.name) == spec.gpu
        assert str(known(gpu.compute_capability)) == spec.compute_capability
        assert str(known(snapshot.driver.driver_release)) == spec.driver
        assert str(known(snapshot.driver.driver_cuda_version)) == spec.driver_cuda
        assert known(snapshot.driver.libcuda_loaded).endswith(f"libcuda.so.{spec.driver}")
    assert proofs


def test_the_mismatched_machine_says_so_in_every_source(tmp_path: Path) -> None:
    snapshot, _ = examine(build_machine("F", tmp_path))
    assert known(snapshot.driver.nvml).code == 18
    assert known(snapshot.driver.nvidia_smi).code == 18
    assert known(snapshot.driver.cu_init).code == 803
    assert {error.source for error in snapshot.errors} >= {"NVML", "nvidia-smi"}


def test_a_hung_nvidia_smi_is_named_and_paid_once(tmp_path: Path) -> None:
    machine = build_machine("X1", tmp_path)
    snapshot, _ = examine(machine)
    status = snapshot.driver.nvidia_smi
    assert isinstance(status, Missing)
    assert status.reason is MissingReason.TIMEOUT
    assert known(known(snapshot.gpus)[0].name) == "NVIDIA GeForce RTX 4090", "NVML has answered meanwhile"
    assert len(calls(machine.nvidia_smi)) == 1


def test_a_torch_that_crashes_leaves_the_rest_complete(tmp_path: Path) -> None:
    snapshot, proofs = examine(build_machine("X2", tmp_path))
    imports = known(snapshot.python.torch).imports
    assert isinstance(imports, Missing)
    assert imports.reason is MissingReason.CRASHED
    assert known(snapshot.gpus)
    assert proofs[0].outcome is ProofOutcome.FAILED


def test_a_healthy_machine_has_no_error_texts(tmp_path: Path) -> None:
    snapshot, proofs = examine(build_machine("A", tmp_path))
    assert snapshot.errors == ()
    assert {proof.outcome for proof in proofs} == {ProofOutcome.PASSED}
