"""Copies between GPUs through a compiled stand-in for libcuda with 1 to 8 devices, some of them sick."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from cudadoctor.gpu import prove_peers
from cudadoctor.gpu.driver_session import DriverSession, describe_driver
from cudadoctor.gpu.prove_peers import PeerRun
from cudadoctor.model.proof import Proof, ProofOutcome

Machine = Callable[..., dict[str, str]]
P, F, U = ProofOutcome.PASSED, ProofOutcome.FAILED, ProofOutcome.UNKNOWN


def run_on(env: dict[str, str], libcuda: str, seconds: float = 60.0) -> PeerRun:
    devices = describe_driver(env, libcuda, 10.0).devices
    return PeerRun(devices, {}, DriverSession(env, libcuda), time.monotonic() + seconds)


def outcomes(proofs: tuple[Proof, ...]) -> dict[tuple[int | None, int | None], ProofOutcome]:
    return {(proof.gpu, proof.peer): proof.outcome for proof in proofs}


@pytest.mark.parametrize("count", [2, 4, 8])
def test_every_pair_is_proven_in_both_directions(fake_libcuda: str, machine: Machine, count: int) -> None:
    proofs = run_on(machine(FAKE_CUDA_DEVICES=count, FAKE_CUDA_PEER_GB_S=40), fake_libcuda).run()
    assert [(proof.gpu, proof.peer) for proof in proofs] == [(a, b) for a in range(count) for b in range(count) if a != b]
    assert {(proof.outcome, proof.kernel, proof.error, proof.because) for proof in proofs} == {(P, "peer-copy", None, None)}
    assert all(proof.gb_s == pytest.approx(40, rel=0.01) and proof.run_ms for proof in proofs)


@pytest.mark.parametrize(("count", "words"), [(1, "one GPU is visible"), (0, "no whole GPU is visible")])
def test_one_gpu_is_not_applicable_and_never_a_pass(fake_libcuda: str, machine: Machine, count: int, words: str) -> None:
    (proof,) = run_on(machine(FAKE_CUDA_DEVICES=count), fake_libcuda).run()
    assert proof.outcome is ProofOutcome.SKIPPED
    assert proof.because == f"not applicable: copies between GPUs need two, and {words}"


@pytest.mark.parametrize("fault", ["wrong", "dropped"])
def test_a_gpu_whose_copies_arrive_wrong_fails_with_all_others(fake_libcuda: str, machine: Machine, fault: str) -> None:
    proofs = run_on(machine(FAKE_CUDA_DEVICES=4, FAKE_CUDA_PEERS=f"2={fault}"), fake_libcuda).run()
    assert {pair for pair, outcome in outcomes(proofs).items() if outcome is F} == {
        (0, 2), (1, 2), (3, 2), (2, 0), (2, 1), (2, 3),
    }  # fmt: skip
    assert all("wrong data" in (proof.because or "") for proof in proofs if proof.outcome is F)
    assert all(proof.outcome is P for proof in proofs if 2 not in (proof.gpu, proof.peer))


def test_a_pair_without_access_is_copied_through_the_host(fake_libcuda: str, machine: Machine) -> None:
    proofs = run_on(machine(FAKE_CUDA_DEVICES=3, FAKE_CUDA_PEERS="0-2=far"), fake_libcuda).run()
    assert {proof.outcome for proof in proofs} == {P}
    staged = [(proof.gpu, proof.peer) for proof in proofs if proof.kernel == "staged-copy"]
    assert staged == [(0, 2), (2, 0)]


def test_refused_access_is_named_and_takes_no_other_pair_along(fake_libcuda: str, machine: Machine) -> None:
    proofs = run_on(machine(FAKE_CUDA_DEVICES=4, FAKE_CUDA_PEERS="1-3=refused"), fake_libcuda).run()
    failed = [proof for proof in proofs if proof.outcome is not P]
    assert [(proof.gpu, proof.peer, proof.outcome) for proof in failed] == [(1, 3, F), (3, 1, F)]
    assert {proof.error.name for proof in failed if proof.error} == {"CUDA_ERROR_MAP_FAILED"}
    assert {proof.because for proof in failed} == {"cuCtxEnablePeerAccess failed"}


def test_a_hanging_gpu_costs_the_others_nothing(fake_libcuda: str, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prove_peers, "COPY_LIMIT_S", 2.0)
    started = time.monotonic()
    proofs = run_on(machine(FAKE_CUDA_DEVICES=4, FAKE_CUDA_PEERS="3=hang"), fake_libcuda).run()
    assert time.monotonic() - started < 30
    assert {pair for pair, outcome in outcomes(proofs).items() if outcome is U} == {
        (0, 3), (1, 3), (2, 3), (3, 0), (3, 1), (3, 2),
    }  # fmt: skip
    reasons = [proof.because or "" for proof in proofs if proof.outcome is U]
    assert sum("gave no answer within" in reason for reason in reasons) == prove_peers.PATIENCE
    assert sum(reason == "not tried: copies with GPU 3 hung before" for reason in reasons) == 4


def test_a_crash_in_a_copy_is_a_failure_of_that_copy(fake_libcuda: str, machine: Machine) -> None:
    proofs = run_on(machine(FAKE_CUDA_DEVICES=2, FAKE_CUDA_CRASH="cuMemcpyPeerAsync"), fake_libcuda).run()
    assert {(proof.outcome, proof.because) for proof in proofs} == {(F, "the process that ran it died of SIGSEGV")}


def test_a_fault_of_the_context_is_named(fake_libcuda: str, machine: Machine) -> None:
    proofs = run_on(machine(FAKE_CUDA_DEVICES=2, FAKE_CUDA_FAIL="cuMemcpyPeerAsync=220"), fake_libcuda).run()
    assert {proof.error.name for proof in proofs if proof.error} == {"CUDA_ERROR_NVLINK_UNCORRECTABLE"}


def test_nothing_is_tried_after_the_deadline(fake_libcuda: str, machine: Machine) -> None:
    proofs = run_on(machine(FAKE_CUDA_DEVICES=2), fake_libcuda, seconds=0).run()
    assert {(proof.outcome, proof.because) for proof in proofs} == {(U, "not tried: the time was over")}


def test_abandoning_ends_the_copy_under_way(fake_libcuda: str, machine: Machine) -> None:
    run = run_on(machine(FAKE_CUDA_DEVICES=2, FAKE_CUDA_PEERS="0-1=hang"), fake_libcuda)
    threading.Timer(1.0, run.abandon).start()
    started = time.monotonic()
    proofs = run.run()
    assert time.monotonic() - started < 4
    assert {proof.outcome for proof in proofs} == {U}
