"""DLLs that Windows cannot load."""

from __future__ import annotations

import pytest

from cudadoctor.matrices import Matrices
from cudadoctor.model.snapshot import Snapshot
from tests.rules.build_machines import (
    errors_of,
    findings,
    judge,
    machine,
    outcome,
    told,
)
from tests.rules.builders import said

CASES: tuple[tuple[str, str, Snapshot, str], ...] = (
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
)


@pytest.mark.parametrize(("rule", "special", "snapshot", "expected"), CASES, ids=[f"{case[0]}: {case[1]}" for case in CASES])
def test_outcome(rule: str, special: str, snapshot: Snapshot, expected: str, matrices: Matrices) -> None:
    assert outcome(judge(snapshot, matrices), rule) == expected


def test_windows_library_is_a_matter_of_the_path(matrices: Matrices) -> None:
    results = judge(told(said("libcudnn-missing", library="cudnn_ops64_9.dll")), matrices)
    assert {"libcudnn-missing", "cuda-dll-not-on-path"} <= errors_of(results)


def test_folder_of_the_named_library_is_put_on_path(matrices: Matrices) -> None:
    (found,) = findings(judge(told(said("libcudnn-missing", library="cudnn_ops64_9.dll")), matrices), "libcudnn-missing")
    (command,) = found.fixes[0].commands
    assert "-Filter cudnn_ops64_9.dll" in command
    assert found.fixes[0].verify == ("where.exe cudnn_ops64_9.dll",)


def test_provider_that_names_no_cuda_library_gets_the_usual_ones(matrices: Matrices) -> None:
    snapshot = told(said("windows-dll-load-failed", library="capi\\onnxruntime_providers_cuda.dll"))
    (found,) = findings(judge(snapshot, matrices), "cuda-dll-not-on-path")
    assert [name for name in ("cudnn64_9.dll", "cublas64_12.dll") if name in " ".join(found.fixes[0].commands)] == [
        "cudnn64_9.dll",
        "cublas64_12.dll",
    ]
