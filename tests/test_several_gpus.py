"""Machines of 2, 4 and 8 GPUs, whole: `cudadoctor check` as a process, its text and its JSON."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from cudadoctor.exit_codes import ExitCode
from tests.fakes.machines import CU130, MachineSpec, build, uuid_of
from tests.fakes.stub_torch import StubTorch
from tests.test_machines import DEADLINE_S, Checked

H200 = ("NVIDIA H200", "9.0")
SIMPLE = MachineSpec(*H200, 143771, "580.95.05", "13.0", None, StubTorch("2.9.1+cu130", "13.0", CU130, (H200,)))


def spec(
    count: int, peers: str = "", group: Mapping[str, str] | None = None, nvml: Mapping[str, object] | None = None, **cuda: object
) -> MachineSpec:
    """A machine of that many H200, with what is wrong."""
    torch = replace(SIMPLE.torch, devices=(H200,) * count, group=group or {})
    variables = {**cuda, **({"FAKE_CUDA_PEERS": peers} if peers else {})}
    return replace(SIMPLE, count=count, torch=torch, cuda_variables=variables, nvml_answers=nvml or {})


def on_a_switch(count: int, **of_gpu: object) -> dict[str, object]:
    """NVML's answers about GPUs with 18 NVLinks 4.0 each, all to switches."""
    links = {f"{index}.{key}": value for index in range(count) for key, value in (("nvlinks", 18), ("nvlink_version", 6))}
    return {**links, "topology": 50, "peer_status": 0, **{f"{key[-1]}.{key[:-1]}": value for key, value in of_gpu.items()}}


def check(folder: Path, machine: MachineSpec, *options: str) -> Checked:
    return Checked(build(machine, folder), *options)


def text_of(folder: Path, machine: MachineSpec, *options: str) -> str:
    argv = [sys.executable, "-m", "cudadoctor", "check", *options]
    built = build(machine, folder)
    done = subprocess.run(argv, env={**built.env, "COLUMNS": "160"}, capture_output=True, timeout=DEADLINE_S, cwd=built.folder)
    return done.stdout.decode()


@pytest.mark.parametrize("count", [2, 4])
def test_a_healthy_set_is_proven_whole(tmp_path: Path, count: int) -> None:
    checked = check(tmp_path, spec(count))
    assert checked.exit_code is ExitCode.OK
    assert checked.report["verdict"] == "healthy"
    assert checked.named("error") | checked.named("warning") == set()
    proofs = checked.report["proofs"]
    copies = [(proof["gpu"], proof["peer"]) for proof in proofs if proof["layer"] == "peer"]
    assert copies == [(a, b) for a in range(count) for b in range(count) if a != b]
    for layer in ("driver-jit", "torch", "peer", "nccl"):
        assert {proof["gpu"] for proof in proofs if proof["layer"] == layer} == set(range(count))
        assert checked.outcomes(layer) == {"passed"}
    assert "peer, nccl" in checked.report["summary"]


def test_one_gpu_has_neither_layer_and_its_report_says_nothing_of_them(tmp_path: Path) -> None:
    checked = check(tmp_path / "json", spec(1))
    assert checked.exit_code is ExitCode.OK
    reasons = {proof["layer"]: proof["because"] for proof in checked.report["proofs"] if proof["outcome"] == "skipped"}
    assert reasons["peer"] == "not applicable: copies between GPUs need two, and one GPU is visible"
    assert reasons["nccl"] == "not applicable: an all-reduce needs two GPUs, and torch sees 1"
    assert "peer" not in checked.report["summary"]
    text = text_of(tmp_path / "text", spec(1))
    assert "peer" not in text and "NCCL" not in text


@pytest.mark.parametrize("count", [4, 8])
def test_one_sick_gpu_among_many_is_named(tmp_path: Path, count: int) -> None:
    sick = spec(count, "2=wrong")
    checked = check(tmp_path / "json", sick, "--timeout", "80")
    assert checked.exit_code is ExitCode.PROBLEMS
    assert checked.roots == ["peer-copy-fails"]
    finding = checked.findings["peer-copy-fails"]
    assert finding["subject"] == "GPU 2"
    pseudonym = next(gpu["uuid"]["value"] for gpu in checked.report["snapshot"]["gpus"]["value"] if gpu["index"] == 2)
    assert pseudonym.startswith("GPU-uuid-")
    assert f"GPU 2 (NVIDIA H200, {pseudonym}, 0000:03:00.0) and every other GPU fail: wrong data" in finding["what"]
    assert uuid_of(2) not in str(checked.report)
    assert "sudo lspci -vvv | grep ACSCtl" in checked.commands("peer-copy-fails")


def test_the_text_names_the_sick_gpu_and_counts_the_copies(tmp_path: Path) -> None:
    text = text_of(tmp_path, spec(4, "2=wrong"))
    assert re.search(r"CD804 peer-copy-fails\s+GPU 2", text)
    assert re.search(r"peer\s+6 of 12 copies right, 40 GB/s, 6 failed; explained by CD804", text)
    assert re.search(r"NCCL\s+4 ranks of an all-reduce right", text)


def test_a_gpu_that_computes_wrong_is_named_by_index_uuid_and_address(tmp_path: Path) -> None:
    checked = check(tmp_path, spec(4, FAKE_CUDA_NO_LAUNCH_ON=3))
    assert set(checked.roots) == {"kernel-proof-fails"}
    finding = checked.findings["kernel-proof-fails"]
    assert finding["subject"] == "GPU 3"
    assert re.search(r"failed on GPU 3 \(NVIDIA H200, GPU-uuid-\d, 0000:04:00\.0\): wrong numbers", finding["what"])


def test_a_hanging_pair_leaves_the_verdict_open_and_the_rest_proven(tmp_path: Path) -> None:
    checked = check(tmp_path, spec(2, "0=hang"))
    assert checked.exit_code is ExitCode.UNDETERMINED
    assert checked.outcomes("peer") == {"unknown"}
    assert checked.outcomes("driver-jit") == {"passed"}
    assert "did not come to an end" in checked.findings["peer-copy-fails"]["what"]


def test_a_failing_all_reduce_is_the_root_and_its_words_are_read(tmp_path: Path) -> None:
    words = "NCCL error in: ProcessGroupNCCL.cpp:3690, unhandled system error, NCCL version 2.21.5"
    checked = check(tmp_path, spec(2, group={"1": words}))
    assert checked.roots == ["nccl-proof-fails"]
    assert checked.findings["nccl-proof-fails"]["subject"] == "GPU 1"
    assert "CD538" in checked.findings["nccl-proof-fails"]["explains"]
    assert "copies between them are right" in checked.findings["nccl-proof-fails"]["why"]
    assert "proof-undetermined" not in checked.findings


def test_gpus_of_two_kinds_are_all_proven_and_remarked(tmp_path: Path) -> None:
    nvml = {"1.name": "NVIDIA A100-SXM4-80GB", "1.cc": "8.0"}
    machine = spec(2, nvml=nvml, FAKE_CUDA_CC="9.0,8.0")
    checked = check(tmp_path, replace(machine, torch=replace(machine.torch, devices=(H200, ("NVIDIA A100-SXM4-80GB", "8.0")))))
    assert "mixed-gpus" in checked.named("note")
    assert checked.outcomes("peer") == checked.outcomes("driver-jit") == {"passed"}


def test_nvlink_and_access_are_facts_of_the_report(tmp_path: Path) -> None:
    checked = check(tmp_path, spec(4, nvml=on_a_switch(4), FAKE_CUDA_PEER_GB_S=360))
    assert checked.exit_code is ExitCode.OK
    assert checked.named("error") | checked.named("warning") == set()
    pairs = checked.report["snapshot"]["gpu_pairs"]["value"]
    assert [(pair["first"], pair["second"]) for pair in pairs] == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    facts = {key: {str(pair[key]["value"]) for pair in pairs} for key in ("topology", "nvlinks", "peer_status", "access")}
    assert facts == {"topology": {"SYS"}, "nvlinks": {"18"}, "peer_status": {"OK"}, "access": {"True"}}
    gpu = checked.report["snapshot"]["gpus"]["value"][0]
    assert (gpu["nvlink_version"]["value"], gpu["nvlinks_active"]["value"]) == ("4.0", 18)


def test_a_slow_gpu_that_lost_links_is_named_with_the_cause(tmp_path: Path) -> None:
    nvml = on_a_switch(4, nvlinks_down1=16)
    text = text_of(tmp_path / "text", spec(4, "1=slow", nvml=nvml, FAKE_CUDA_PEER_GB_S=360))
    assert re.search(r"CD517 nvlink-inactive\s+GPU 1", text)
    assert re.search(r"Links\s+3 pairs by NVLink x2, 3 pairs by NVLink x18, 6 of 6 with peer\s+! CD517", text)


def test_a_slow_gpu_without_a_visible_cause_is_named(tmp_path: Path) -> None:
    checked = check(tmp_path, spec(4, "1=slow", nvml=on_a_switch(4), FAKE_CUDA_PEER_GB_S=360))
    assert checked.exit_code is ExitCode.OK
    finding = checked.findings["peer-copy-slow"]
    assert finding["subject"] == "GPU 1"
    assert re.search(
        r"GPU 1 \(NVIDIA H200, GPU-uuid-\d, 0000:02:00\.0\) and every other GPU are slow: 36 GB/s, where", finding["what"]
    )


def test_a_pair_without_access_is_copied_through_the_host_and_remarked(tmp_path: Path) -> None:
    nvml = {"topology": 50, "peer_status": 0, "peer_status.0.1": 1}
    checked = check(tmp_path, spec(4, "0-1=far", nvml=nvml))
    assert checked.exit_code is ExitCode.OK
    assert checked.outcomes("peer") == {"passed"}
    finding = checked.findings["peer-access-missing"]
    assert (finding["severity"], finding["subject"]) == ("note", "GPU 0 and GPU 1")
    assert "NVML: chipset not supported" in finding["what"]
    assert [p["kernel"] for p in checked.report["proofs"] if (p["gpu"], p["peer"]) == (0, 1)] == ["staged-copy"]


def test_a_driver_that_dies_when_asked_about_peers_loses_only_that(tmp_path: Path) -> None:
    checked = check(tmp_path, spec(2, FAKE_CUDA_CRASH="cuDeviceCanAccessPeer"))
    assert checked.outcomes("driver-jit") == {"passed"}
    (pair,) = checked.report["snapshot"]["gpu_pairs"]["value"]
    assert "SIGSEGV" in pair["access"]["detail"]
    assert checked.roots == ["peer-copy-fails"]
