"""CUDA's run-time libraries: missing, mixed, shadowed."""

from __future__ import annotations

import pytest

from cudadoctor.matrices import Matrices
from cudadoctor.model.fact import Missing, MissingReason
from cudadoctor.model.snapshot import SearchFolder, Snapshot
from tests.rules.build_machines import (
    changed,
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
    variables,
)
from tests.rules.builders import said

SHADOW = SearchFolder(path="/usr/local/cuda-12.1/lib64", exists=True, shadows=("libnvJitLink.so.12",))
OF_IMAGES = SearchFolder(path="/usr/local/nvidia/lib", exists=False)
GONE = SearchFolder(path="/opt/gone/lib", exists=False)
NO_IMPORT = torch(imports=Missing(MissingReason.FAILED, "undefined symbol", "torch child"))

CASES: tuple[tuple[str, str, Snapshot, str], ...] = (
    ("libdevice-missing", "nothing compiled", machine(), "pass"),
    ("libdevice-missing", "XLA says so", told(said("libdevice-missing")), "error"),
    ("cuda-lib-too-old", "nothing said", machine(), "pass"),
    (
        "cuda-lib-too-old",
        "jax compares",
        told(said("jax-cuda-init-failed", library="cuSPARSE", have="12103", wanted="12200")),
        "error",
    ),
    (
        "cuda-lib-too-old",
        "cuDNN has its own",
        told(said("jax-cuda-init-failed", library="cuDNN", have="8600", wanted="8700")),
        "pass",
    ),
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
    ("ld-library-path-shadow", "not set", machine(), "pass"),
    ("ld-library-path-shadow", "shadows, torch works", machine(library_path(SHADOW)), "note"),
    ("ld-library-path-shadow", "shadows, torch does not import", machine(library_path(SHADOW), NO_IMPORT), "warning"),
    ("ld-library-path-shadow", "unknown", machine(unasked("libraries"), lambda s: told()), "unknown"),
    ("ld-library-path-shadow", "undefined symbol", told(said("ld-library-path-shadow")), "error"),
    ("ld-library-path-dangling", "not set", machine(), "pass"),
    ("ld-library-path-dangling", "a folder that is gone", machine(library_path(GONE)), "note"),
    ("ld-library-path-dangling", "a folder of NVIDIA's images", machine(library_path(OF_IMAGES)), "pass"),
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
)


@pytest.mark.parametrize(("rule", "special", "snapshot", "expected"), CASES, ids=[f"{case[0]}: {case[1]}" for case in CASES])
def test_outcome(rule: str, special: str, snapshot: Snapshot, expected: str, matrices: Matrices) -> None:
    assert outcome(judge(snapshot, matrices), rule) == expected


def test_shadowing_folder_alone_is_taken_out(matrices: Matrices) -> None:
    good = SearchFolder(path="/opt/mine/lib", exists=True)
    snapshot = changed(machine(library_path(SHADOW, good)), errors(said("ld-library-path-shadow")))
    (found,) = findings(judge(snapshot, matrices), "ld-library-path-shadow")
    assert found.fixes[0].commands == ("export LD_LIBRARY_PATH=/opt/mine/lib",)


def test_older_library_on_the_path_is_shadowing(matrices: Matrices) -> None:
    compared = said("jax-cuda-init-failed", library="cuSPARSE", have="12103", wanted="12200")
    snapshot = changed(machine(library_path(SHADOW)), errors(compared))
    assert {"cuda-lib-too-old", "ld-library-path-shadow"} <= errors_of(judge(snapshot, matrices))


def test_libdevice_of_the_toolkit_here_is_named(matrices: Matrices) -> None:
    (found,) = findings(judge(changed(machine(), errors(said("libdevice-missing"))), matrices), "libdevice-missing")
    assert found.fixes[0].commands == ("export XLA_FLAGS=--xla_gpu_cuda_data_dir=/usr/local/cuda-12.8",)


def test_folders_that_are_gone_are_taken_out(matrices: Matrices) -> None:
    snapshot = machine(library_path(GONE, OF_IMAGES), variables(LD_LIBRARY_PATH="/opt/gone/lib/:/usr/local/nvidia/lib"))
    (found,) = findings(judge(snapshot, matrices), "ld-library-path-dangling")
    assert found.fixes[0].commands == ("export LD_LIBRARY_PATH=/usr/local/nvidia/lib",)
