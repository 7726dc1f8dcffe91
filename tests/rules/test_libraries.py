"""CUDA's run-time libraries and cuDNN: missing, mixed, shadowed."""

from __future__ import annotations

import pytest

from cudadoctor.matrices import Matrices
from cudadoctor.model.fact import Missing, MissingReason
from cudadoctor.model.snapshot import SearchFolder, Snapshot
from cudadoctor.model.versions import DottedVersion
from cudadoctor.rules.cudnn import needed_major
from cudadoctor.rules.library_fixes import wheel_of
from tests.rules.build_machines import (
    changed,
    copies,
    errors,
    errors_of,
    findings,
    judge,
    library_path,
    machine,
    outcome,
    packages,
    told,
    torch,
    unasked,
)
from tests.rules.builders import known, said

SHADOW = SearchFolder(path="/usr/local/cuda-12.1/lib64", exists=True, shadows=("libnvJitLink.so.12",))
GONE = SearchFolder(path="/opt/gone/lib", exists=False)
NO_IMPORT = torch(imports=Missing(MissingReason.FAILED, "undefined symbol", "torch child"))
CASES: tuple[tuple[str, str, Snapshot, str], ...] = (
    ("libcudart-missing", "all there", machine(), "pass"),
    ("libcudart-missing", "the loader says so", told(said("libcudart-missing", library="libcudart.so.11.0")), "error"),
    ("cuda-lib-missing", "all there", machine(), "pass"),
    ("cuda-lib-missing", "the loader says so", told(said("cuda-lib-missing", library="libcusolver.so.11")), "error"),
    (
        "cuda-lib-missing",
        "TensorRT is optional for TensorFlow",
        told(said("cuda-lib-missing", "Could not load dynamic library 'libnvinfer.so.7'", library="libnvinfer.so.7")),
        "pass",
    ),
    ("cuda-lib-missing", "TensorRT elsewhere", told(said("cuda-lib-missing", library="libnvinfer.so.10")), "error"),
    (
        "cuda-lib-missing",
        "a summary of what cuDNN's absence did",
        told(said("cuda-lib-missing", "Cannot dlopen some GPU libraries"), said("libcudnn-missing", library="libcudnn.so.8")),
        "pass",
    ),
    (
        "cuda-lib-missing",
        "onnxruntime on Linux, without a reason",
        told(said("onnxruntime-cuda-provider-failed", "Failed to create CUDAExecutionProvider. Require cuDNN 9.* and CUDA 12.*")),
        "error",
    ),
    ("cuda-dll-not-on-path", "nothing said", machine(), "pass"),
    (
        "cuda-dll-not-on-path",
        "onnxruntime's provider",
        told(said("windows-dll-load-failed", library="capi\\onnxruntime_providers_cuda.dll")),
        "error",
    ),
    ("cuda-dll-not-on-path", "a CPU library", told(said("windows-dll-load-failed", library="torch\\lib\\fbgemm.dll")), "pass"),
    ("msvc-runtime-missing", "nothing said", machine(), "pass"),
    ("msvc-runtime-missing", "a CPU library", told(said("windows-dll-load-failed", library="torch\\lib\\c10.dll")), "error"),
    ("ld-library-path-shadow", "not set", machine(), "pass"),
    ("ld-library-path-shadow", "shadows, torch works", machine(library_path(SHADOW)), "note"),
    ("ld-library-path-shadow", "shadows, torch does not import", machine(library_path(SHADOW), NO_IMPORT), "warning"),
    ("ld-library-path-shadow", "unknown", machine(unasked("libraries"), lambda s: told()), "unknown"),
    ("ld-library-path-shadow", "undefined symbol", told(said("ld-library-path-shadow")), "error"),
    ("ld-library-path-dangling", "not set", machine(), "pass"),
    ("ld-library-path-dangling", "a folder that is gone", machine(library_path(GONE)), "note"),
    ("ld-library-path-dangling", "unknown", told(), "unknown"),
    ("wheels-mix-cuda-majors", "one major", machine(packages(nvidia_cublas_cu12="12.8.4", nvidia_cudnn_cu12="9.10")), "pass"),
    (
        "wheels-mix-cuda-majors",
        "files of one name",
        machine(packages(nvidia_cudnn_cu11="9.1.0", nvidia_cudnn_cu12="9.10.2")),
        "warning",
    ),
    (
        "wheels-mix-cuda-majors",
        "files of two names",
        machine(packages(nvidia_cublas_cu11="11.10.3", nvidia_cublas_cu12="12.8.4")),
        "note",
    ),
    (
        "wheels-mix-cuda-majors",
        "cuDNNs of two majors",
        machine(packages(nvidia_cudnn_cu11="8.5.0.96", nvidia_cudnn_cu12="9.10.2")),
        "note",
    ),
    ("wheels-mix-cuda-majors", "unknown", told(), "unknown"),
    ("system-library-too-old", "nothing said", machine(), "pass"),
    ("system-library-too-old", "the loader says so", told(said("glibc-symbol-version-missing", wanted="glibc_2.32")), "error"),
    ("libcudnn-missing", "all there", machine(), "pass"),
    ("libcudnn-missing", "the loader says so", told(said("libcudnn-missing", library="libcudnn_cnn.so.9")), "error"),
    ("cudnn-major-mismatch", "all there", machine(), "pass"),
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


@pytest.mark.parametrize(
    ("library", "cuda", "wheel"),
    [
        ("libcudart.so.12", 12, "nvidia-cuda-runtime-cu12"),
        ("libcudart.so.13", 13, "nvidia-cuda-runtime"),
        ("libcublasLt.so.12", 12, "nvidia-cublas-cu12"),
        ("libcudnn_ops.so.9", 13, "nvidia-cudnn-cu13"),
        ("libnccl.so.2", 13, "nvidia-nccl-cu13"),
        ("libunknown.so.1", 12, None),
    ],
)
def test_wheel_that_brings_a_library(library: str, cuda: int, wheel: str | None) -> None:
    assert wheel_of(library, cuda) == wheel


def test_installed_wheel_is_put_on_the_path(matrices: Matrices) -> None:
    snapshot = changed(told(said("libcudnn-missing", library="libcudnn_cnn.so.9")), packages(nvidia_cudnn_cu12="9.1.0.70"))
    (found,) = findings(judge(snapshot, matrices), "libcudnn-missing")
    (command,) = found.fixes[0].commands
    assert command.startswith("export LD_LIBRARY_PATH=")
    assert "/cudnn/lib" in command
    assert "cudnn-major-mismatch" not in errors_of(judge(snapshot, matrices))


def test_major_mismatch_is_the_cause_of_the_missing_library(matrices: Matrices) -> None:
    snapshot = changed(
        told(said("libcudnn-missing", library="libcudnn_ops_infer.so.8")),
        packages(nvidia_cudnn_cu12="9.1.0.70", ctranslate2="4.4.0"),
    )
    results = judge(snapshot, matrices)
    assert findings(results, "cudnn-major-mismatch")[0].root
    assert not findings(results, "libcudnn-missing")[0].root


def test_mixed_wheels_are_removed_by_one_command(matrices: Matrices) -> None:
    snapshot = machine(
        packages(nvidia_cudnn_cu11="9.1.0", nvidia_cudnn_cu12="9.10.2", nvidia_nccl_cu11="2.14", nvidia_nccl_cu12="2.27")
    )
    (found,) = findings(judge(snapshot, matrices), "wheels-mix-cuda-majors")
    assert found.fixes[0].commands[0].endswith("pip uninstall -y nvidia-cudnn-cu11 nvidia-nccl-cu11")
    assert found.fixes[0].rechecked


def test_shadowing_folder_alone_is_taken_out(matrices: Matrices) -> None:
    good = SearchFolder(path="/opt/mine/lib", exists=True)
    snapshot = changed(machine(library_path(SHADOW, good)), errors(said("ld-library-path-shadow")))
    (found,) = findings(judge(snapshot, matrices), "ld-library-path-shadow")
    assert found.fixes[0].commands == ("export LD_LIBRARY_PATH=/opt/mine/lib",)


def test_windows_library_is_a_matter_of_the_path(matrices: Matrices) -> None:
    results = judge(told(said("libcudnn-missing", library="cudnn_ops64_9.dll")), matrices)
    assert {"libcudnn-missing", "cuda-dll-not-on-path"} <= errors_of(results)
