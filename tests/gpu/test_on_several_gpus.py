"""The layers peer and nccl on real GPUs. Skipped, with the reason, below two of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

from cudadoctor.gpu.description import DriverDescription
from cudadoctor.gpu.driver_session import DriverSession, describe_driver
from cudadoctor.gpu.prove_peers import PeerRun, whole_devices
from cudadoctor.model.proof import ProofOutcome
from cudadoctor.probes.nccl_group import NcclGroup
from cudadoctor.system import RealSystem

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def driver() -> DriverDescription:
    found = describe_driver(os.environ, timeout_s=30)
    count = len(whole_devices(found.devices))
    if count < 2:
        pytest.skip(
            f"needs two GPUs, and {count} can be used here: {found.refusal or found.failure_text or 'no others are visible'}"
        )
    return found


def test_every_pair_is_described(driver: DriverDescription) -> None:
    count = len(driver.devices)
    assert driver.peers_failure is None
    assert len(driver.peers) == count * (count - 1)


def test_every_copy_arrives(driver: DriverDescription) -> None:
    proofs = PeerRun(driver.devices, {}, DriverSession(os.environ), time.monotonic() + 120).run()
    print("\n".join(f"{proof.gpu} to {proof.peer}: {proof.kernel}, {proof.gb_s:.1f} GB/s" for proof in proofs if proof.gb_s))
    assert {(proof.outcome, proof.because) for proof in proofs} == {(ProofOutcome.PASSED, None)}


def test_all_gpus_sum_through_nccl(driver: DriverDescription) -> None:
    asked = "import torch, torch.distributed as d; raise SystemExit(not (torch.cuda.is_available() and d.is_nccl_available()))"
    if subprocess.run([sys.executable, "-c", asked], capture_output=True).returncode:
        pytest.skip("the Python of the tests has no torch that uses CUDA and has NCCL")
    proofs = NcclGroup(RealSystem(os.environ), sys.executable, range(len(driver.devices))).run(time.monotonic() + 60)
    print("\n".join(f"GPU {proof.gpu}: {proof.run_ms:.3f} ms, bus {proof.gb_s:.1f} GB/s" for proof in proofs if proof.gb_s))
    assert {(proof.outcome, proof.because) for proof in proofs} == {(ProofOutcome.PASSED, None)}


def test_the_whole_check_knows_the_set(driver: DriverDescription) -> None:
    argv = [sys.executable, "-m", "cudadoctor", "check", "--format", "json", "--timeout", "120"]
    report = json.loads(subprocess.run(argv, capture_output=True, timeout=180).stdout)
    assert {proof["outcome"] for proof in report["proofs"] if proof["layer"] == "peer"} == {"passed"}
    assert len(report["snapshot"]["gpu_pairs"]["value"]) == len(driver.devices) * (len(driver.devices) - 1) // 2
