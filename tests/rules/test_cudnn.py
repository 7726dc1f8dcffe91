"""cuDNN: missing, of another major or minor, mixed, without kernels for the GPU."""

from __future__ import annotations

import pytest

from cudadoctor.matrices import Matrices
from cudadoctor.model.snapshot import Snapshot
from cudadoctor.model.versions import DottedVersion
from cudadoctor.rules.cudnn import needed_major
from tests.rules.build_machines import (
    changed,
    copies,
    errors,
    findings,
    judge,
    machine,
    outcome,
    packages,
    told,
    torch,
)
from tests.rules.builders import known, said

WANTS_8 = packages(ctranslate2="4.4.0", nvidia_cudnn_cu12="9.1.0.70")

CASES: tuple[tuple[str, str, Snapshot, str], ...] = (
    ("libcudnn-missing", "all there", machine(), "pass"),
    ("libcudnn-missing", "the loader says so", told(said("libcudnn-missing", library="libcudnn_cnn.so.9")), "error"),
    ("cudnn-major-mismatch", "all there", machine(), "pass"),
    ("cudnn-major-mismatch", "unknown packages", told(), "unknown"),
    ("cudnn-major-mismatch", "a package that wants 8, and only 9", machine(WANTS_8), "warning"),
    ("cudnn-major-mismatch", "a package that wants 8, and both", machine(WANTS_8, copies("/lib/libcudnn.so.8.9.7")), "pass"),
    (
        "cudnn-major-mismatch",
        "a package that wants 9",
        machine(packages(nvidia_cudnn_cu12="9.1", onnxruntime_gpu="1.20.1")),
        "pass",
    ),
    ("cudnn-major-mismatch", "nothing installed is known", told(said("libcudnn-missing", library="libcudnn.so.8")), "pass"),
    (
        "cudnn-major-mismatch",
        "9 installed, 8 needed",
        changed(told(said("libcudnn-missing", library="libcudnn_ops_infer.so.8")), packages(nvidia_cudnn_cu12="9.1.0.70")),
        "error",
    ),
    (
        "cudnn-major-mismatch",
        "the needed one is installed too",
        changed(told(said("libcudnn-missing", library="libcudnn_ops.so.9")), packages(nvidia_cudnn_cu12="9.1.0.70")),
        "pass",
    ),
    (
        "cudnn-major-mismatch",
        "torch's release brings 9",
        changed(told(said("libcudnn-missing", library="libcudnn_ops_infer.so.8")), torch(torch_version=known("2.5.1+cu124"))),
        "error",
    ),
    ("cudnn-major-mismatch", "by a version text", told(said("cudnn-version-mismatch", have="8.9.2", wanted="9.1.0")), "error"),
    ("cudnn-version-mismatch", "all there", machine(), "pass"),
    ("cudnn-version-mismatch", "XLA's text", told(said("cudnn-version-mismatch", have="9.10.1", wanted="9.13.1")), "error"),
    (
        "cudnn-version-mismatch",
        "torch's text",
        told(said("cudnn-version-mismatch", have_tuple="8, 5, 0", wanted_tuple="8, 7, 0")),
        "error",
    ),
    ("cudnn-version-mismatch", "another major", told(said("cudnn-version-mismatch", have="8.9.2", wanted="9.1.0")), "pass"),
    (
        "cudnn-version-mismatch",
        "jax's numbers",
        told(said("jax-cuda-init-failed", "Found cuDNN version 90101, but JAX", have="90101", wanted="90800")),
        "error",
    ),
    ("several-cudnns", "none found", machine(), "pass"),
    ("several-cudnns", "two versions", machine(copies("/a/libcudnn.so.9.1.0", "/b/libcudnn.so.9.10.2")), "note"),
    ("several-cudnns", "unknown", told(), "unknown"),
    ("cudnn-sublibrary-mix", "one folder", machine(torch(mapped_libraries=("/a/libcudnn.so.9", "/a/libcudnn_ops.so.9"))), "pass"),
    (
        "cudnn-sublibrary-mix",
        "two folders",
        machine(torch(mapped_libraries=("/a/libcudnn.so.9", "/b/libcudnn_ops.so.9"))),
        "warning",
    ),
    ("cudnn-sublibrary-mix", "unknown", told(), "unknown"),
    (
        "cudnn-sublibrary-mix",
        "cuDNN says so",
        told(said("cudnn-version-mismatch", "CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH")),
        "error",
    ),
    ("cudnn-dropped-gpu", "serves", machine(torch(cudnn_version=known(DottedVersion.parse("9.10.2")))), "pass"),
    ("cudnn-dropped-gpu", "no torch", told(), "not_applicable"),
    ("cudnn-dropped-gpu", "unknown", machine(), "unknown"),
    ("cudnn-fails", "nothing said", machine(), "pass"),
    ("cudnn-fails", "cuDNN says so", told(said("cudnn-not-initialized")), "warning"),
    ("cudnn-fails", "a plan that it has not", told(said("cudnn-not-initialized", "CUDNN_STATUS_NOT_SUPPORTED")), "pass"),
    ("cudnn-fails", "the memory is full", told(said("cudnn-not-initialized"), said("cuda-out-of-memory")), "pass"),
)


@pytest.mark.parametrize(("rule", "special", "snapshot", "expected"), CASES, ids=[f"{case[0]}: {case[1]}" for case in CASES])
def test_outcome(rule: str, special: str, snapshot: Snapshot, expected: str, matrices: Matrices) -> None:
    assert outcome(judge(snapshot, matrices), rule) == expected


def volta(cudnn: str) -> Snapshot:
    return machine(torch(cudnn_version=known(DottedVersion.parse(cudnn))), gpu="Tesla V100-SXM2-16GB", cc="7.0")


@pytest.mark.parametrize(
    ("cudnn", "expected"), [("9.10.2", "pass"), ("9.11.0", "warning"), ("9.13.1", "warning"), ("12.1", "pass")]
)
def test_cudnn_that_dropped_the_gpu(cudnn: str, expected: str, matrices: Matrices) -> None:
    assert outcome(judge(volta(cudnn), matrices), "cudnn-dropped-gpu") == expected


def test_cudnn_that_dropped_the_gpu_and_failed_is_the_cause(matrices: Matrices) -> None:
    results = judge(changed(volta("9.13.1"), errors(said("cudnn-not-initialized", "CUDNN_STATUS_EXECUTION_FAILED"))), matrices)
    assert outcome(results, "cudnn-dropped-gpu") == "error"
    assert not findings(results, "cudnn-fails")[0].root


@pytest.mark.parametrize(
    ("library", "major"),
    [
        ("libcudnn.so.8", 8),
        ("libcudnn_cnn.so.9.1.0", 9),
        ("libcudnn_ops_infer.so", 8),
        ("libcudnn_graph.so", 9),
        ("libcudnn_ops.so", 9),
        ("libcudnn.so", None),
        ("cudnn_ops_infer64_8.dll", 8),
        ("cudnn64_9.dll", 9),
        ("cudnn_ops64_9", 9),
    ],
)
def test_cudnn_major_of_a_library(library: str, major: int | None) -> None:
    assert needed_major(library) == major


def test_major_mismatch_is_the_cause_of_the_missing_library(matrices: Matrices) -> None:
    snapshot = changed(
        told(said("libcudnn-missing", library="libcudnn_ops_infer.so.8")),
        packages(nvidia_cudnn_cu12="9.1.0.70", ctranslate2="4.4.0"),
    )
    results = judge(snapshot, matrices)
    assert findings(results, "cudnn-major-mismatch")[0].root
    assert not findings(results, "libcudnn-missing")[0].root


def test_package_that_uses_the_present_cudnn_is_suggested_first(matrices: Matrices) -> None:
    (found,) = findings(judge(machine(WANTS_8), matrices), "cudnn-major-mismatch")
    assert found.fixes[0].commands[0].endswith("pip install 'ctranslate2>=4.5,<4.8'")
