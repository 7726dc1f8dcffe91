"""The all-reduce over all GPUs: real processes of a stub torch, some of them sick, and real torch over gloo where it is there."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cudadoctor.model.fact import Known, Missing, MissingReason
from cudadoctor.model.proof import Proof, ProofLayer, ProofOutcome
from cudadoctor.model.snapshot import Torch
from cudadoctor.model.versions import DottedVersion
from cudadoctor.probes import nccl_group
from cudadoctor.probes.nccl_group import CHILD, NcclGroup, why_no_group
from cudadoctor.system import RealSystem
from tests.fakes.stub_torch import StubTorch, make_environment
from tests.rules.builders import healthy

P, F, U, S = ProofOutcome.PASSED, ProofOutcome.FAILED, ProofOutcome.UNKNOWN, ProofOutcome.SKIPPED
H200 = ("NVIDIA H200", "9.0")


def group_of(folder: Path, gpus: tuple[int, ...], **group: str) -> NcclGroup:
    faults = {rank.removeprefix("rank"): fault for rank, fault in group.items()}
    torch = StubTorch("2.9.1+cu130", "13.0", ("sm_90",), tuple(H200 for _ in gpus), group=faults)
    return NcclGroup(RealSystem(os.environ), str(make_environment(folder / "venv", torch)), gpus)


def run(group: NcclGroup, seconds: float = 30) -> tuple[Proof, ...]:
    return group.run(time.monotonic() + seconds)


def running_ranks() -> list[str]:
    """Processes of ours that run the child."""
    listed = subprocess.run(["ps", "-eo", "ppid,args"], capture_output=True, text=True, check=True).stdout.splitlines()
    return [line for line in listed if CHILD.name in line and line.split()[0] == str(os.getpid())]


@pytest.mark.parametrize("count", [2, 4, 8])
def test_every_rank_has_a_proof_with_its_bus_bandwidth(tmp_path: Path, count: int) -> None:
    group = group_of(tmp_path, tuple(range(count)))
    proofs = run(group, 60)
    assert [(proof.gpu, proof.outcome, proof.because) for proof in proofs] == [(gpu, P, None) for gpu in range(count)]
    for proof in proofs:
        assert (proof.layer, proof.kernel, proof.max_error) == (ProofLayer.NCCL, "all-reduce", 0.0)
        assert proof.run_ms and proof.gb_s == pytest.approx(
            2 * (count - 1) / count * 0.064 * 2**20 / 1e3 / proof.run_ms * 1.0, rel=0.05
        )
    assert group.said == ""


def test_the_reports_numbers_are_used(tmp_path: Path) -> None:
    assert [proof.gpu for proof in run(group_of(tmp_path, (3, 1)))] == [3, 1]


def test_wrong_sums_fail(tmp_path: Path) -> None:
    proofs = run(group_of(tmp_path, (0, 1), rank1="wrong"))
    assert proofs[1].outcome is F and "sums are wrong" in (proofs[1].because or "")


def test_a_rank_that_dies_is_named_and_the_others_are_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_group, "LAST_WORDS_S", 0.2)
    started = time.monotonic()
    proofs = run(group_of(tmp_path, (0, 1, 2, 3), rank2="segfault"))
    assert time.monotonic() - started < 15
    assert proofs[2].outcome is F and "joining the group: died of SIGSEGV" in (proofs[2].because or "")
    assert {(p.outcome, p.because) for p in proofs if p.gpu != 2} == {(U, "ended, as the rank on GPU 2 failed")}
    assert running_ranks() == []


def test_an_error_of_nccl_is_kept_for_the_table_of_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_group, "LAST_WORDS_S", 0.2)
    words = "NCCL error in: ProcessGroupNCCL.cpp:3690, unhandled system error, NCCL version 2.21.5\nncclSystemError: no shm"
    group = group_of(tmp_path, (0, 1), rank0=words)
    proofs = run(group)
    assert (proofs[0].outcome, proofs[0].because) == (F, f"joining the group: {words.splitlines()[0]}")
    assert words in group.said


def test_a_gpu_without_memory_proves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_group, "LAST_WORDS_S", 0.2)
    proofs = run(group_of(tmp_path, (0, 1), rank0="CUDA out of memory. Tried to allocate 64.00 MiB."))
    assert {proof.outcome for proof in proofs} == {U}


def test_a_hang_ends_at_the_deadline_and_leaves_nothing_running(tmp_path: Path) -> None:
    started = time.monotonic()
    proofs = run(group_of(tmp_path, (0, 1, 2), rank1="hang"), 5)
    assert time.monotonic() - started < 12
    assert {proof.outcome for proof in proofs} == {U}
    reasons = [proof.because or "" for proof in proofs]
    assert [reason.partition(":")[0] for reason in reasons] == [
        "the first all-reduce",
        "joining the group",
        "the first all-reduce",
    ]
    assert all("no answer within" in reason for reason in reasons)
    assert running_ranks() == []


@pytest.mark.parametrize(("fault", "words"), [("exit", "exit code 3"), ("garbage", "ended without a word about it")])
def test_a_rank_that_ends_without_a_result_proves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, words: str
) -> None:
    monkeypatch.setattr(nccl_group, "LAST_WORDS_S", 0.2)
    proofs = run(group_of(tmp_path, (0, 1), rank0=fault))
    assert proofs[0].outcome is U and words in (proofs[0].because or "")
    assert proofs[1].outcome is U


def test_an_interpreter_that_is_not_there(tmp_path: Path) -> None:
    proofs = run(NcclGroup(RealSystem(os.environ), str(tmp_path / "python"), (0, 1)))
    assert {proof.outcome for proof in proofs} == {U}
    assert all("could not be started" in (proof.because or "") for proof in proofs)


def test_nothing_is_started_when_the_time_is_over(tmp_path: Path) -> None:
    assert {proof.because for proof in run(group_of(tmp_path, (0, 1)), 1)} == {"not tried: the time was over"}


def test_multicast_is_off_and_nothing_leaves_the_machine() -> None:
    assert nccl_group.OWN_SETTINGS["NCCL_NVLS_ENABLE"] == "0"
    assert nccl_group.OWN_SETTINGS["NCCL_SOCKET_IFNAME"] == "lo"


def with_torch(torch: Known[Torch] | Missing) -> object:
    from msgspec import structs

    machine = healthy(*H200, count=2)
    return structs.replace(machine, python=structs.replace(machine.python, torch=torch))


TORCH = Torch(is_available=Known(True, "t"), nccl_version=Known(DottedVersion.parse("2.21.5"), "t"))
NO_NCCL = Torch(is_available=Known(True, "t"), nccl_version=Missing(MissingReason.NOT_FOUND, "torch has no NCCL", "t"))
SICK = (Proof(ProofLayer.TORCH, 1, "matmul", "sm_90", F),)


@pytest.mark.parametrize(
    ("torch", "gpus", "proofs", "because"),
    [
        (Known(TORCH, "t"), (0, 1), (), None),
        (Known(TORCH, "t"), (0,), (), "not applicable: an all-reduce needs two GPUs, and torch sees 1"),
        (Known(TORCH, "t"), (0, 1), SICK, "not tried: torch does not compute on GPU 1 alone"),
        (Known(NO_NCCL, "t"), (0, 1), (), "this torch has no NCCL: torch has no NCCL"),
        (Known(Torch(is_available=Known(False, "t")), "t"), (), (), "torch cannot use CUDA"),
        (Missing(MissingReason.NOT_FOUND, "", "t"), (), (), "torch is not installed"),
    ],
)
def test_why_no_all_reduce_is_tried(
    torch: Known[Torch] | Missing, gpus: tuple[int, ...], proofs: tuple[Proof, ...], because: str | None
) -> None:
    skipped = why_no_group(with_torch(torch), gpus, proofs)  # type: ignore[arg-type]  # a Snapshot
    assert (skipped.because if skipped is not None else None) == because
    assert skipped is None or skipped.outcome is S


REAL_TORCH = os.environ.get("CUDADOCTOR_TEST_TORCH", sys.executable)
"""An interpreter whose torch has gloo; CUDADOCTOR_TEST_TORCH names another than ours."""


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 4])
def test_real_torch_over_gloo(count: int) -> None:
    asked = "import torch.distributed as d; raise SystemExit(not d.is_gloo_available())"
    if subprocess.run([REAL_TORCH, "-c", asked], capture_output=True).returncode:
        pytest.skip(f"no torch with gloo in {REAL_TORCH}: set CUDADOCTOR_TEST_TORCH to an interpreter that has one")
    proofs = NcclGroup(RealSystem(os.environ), REAL_TORCH, range(count), "gloo").run(time.monotonic() + 60)
    assert {(proof.outcome, proof.because) for proof in proofs} == {(P, None)}
    assert all(proof.gb_s and proof.max_error == 0.0 for proof in proofs)
    assert running_ranks() == []
