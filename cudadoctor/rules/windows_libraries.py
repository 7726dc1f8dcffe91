"""Rules about DLLs that Windows cannot load (CD303, CD310)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cudadoctor.model.finding import Confidence, Fix, Severity, Where
from cudadoctor.model.snapshot import ErrorSeen
from cudadoctor.rules import library_fixes
from cudadoctor.rules.engine import Case, Problem, Remedy, Rule
from cudadoctor.rules.libraries import named_libraries
from cudadoctor.rules.toolkit_questions import (
    quoted,
    variable_evidence,
)

CUDA_DLL = re.compile(
    r"cuda|cudnn|cublas|cudart|cufft|curand|cusolver|cusparse|nvrtc|nvinfer|tensorrt|ctranslate2|nvjitlink|cupti"
)
"""Names of Windows libraries that are CUDA's, or need CUDA's."""


def cuda_dll_not_on_path(case: Case) -> Iterable[Problem]:
    """Windows: a CUDA or cuDNN DLL is not in a folder that the loader searches (error 126).

    What it checks: error 126 and "DLL load failed" for a library that is CUDA's or needs CUDA's, such as onnxruntime's CUDA
    provider.

    Why it matters: Windows names the library that was asked for, not the one that it lacks. cuDNN 9 installs into a folder for
    each CUDA version (bin\\12.x), which no installer puts on PATH.

    How to fix: put the bin folders of the CUDA toolkit and of cuDNN on PATH (from Python 3.8 on os.add_dll_directory for
    extension modules), or import torch first, which brings them.

    When it is wrong: a CPU library of torch (c10.dll, fbgemm.dll) lacks the Visual C++ runtime instead.

    Sources: Windows error 126; onnxruntime documentation, CUDA execution provider; cuDNN installation guide for Windows.
    """
    errors = [one for one in case.errors("windows-dll-load-failed") if _needs_cuda(one)]
    if case.saw("windows-dll-load-failed") and case.saw("onnxruntime-cuda-provider-failed"):
        errors = list(case.errors("windows-dll-load-failed", "onnxruntime-cuda-provider-failed"))
    if not errors:
        return
    yield Problem(
        subject="PATH",
        what="Windows does not find a DLL of CUDA or cuDNN that this library needs (error 126).",
        why="The bin folders of the toolkit and of cuDNN (for cuDNN 9 the subfolder of the CUDA version) have to be on PATH.",
        evidence=(*quoted(errors), *variable_evidence(case.snapshot, "PATH")),
        remedies=library_fixes.cuda_on_windows_path(named_libraries(errors)),
        confidence=Confidence.LIKELY,
    )


def _needs_cuda(error: ErrorSeen) -> bool:
    named = " ".join(error.values.get(key, "") for key in ("library", "dependency", "module")) or error.text
    return CUDA_DLL.search(re.split(r"[/\\]", named.lower())[-1]) is not None


def msvc_runtime_missing(case: Case) -> Iterable[Problem]:
    """Windows: a library of torch or TensorFlow that has nothing to do with CUDA cannot be loaded.

    What it checks: error 126 for c10.dll, fbgemm.dll, shm.dll, torch_cpu.dll and TensorFlow's own module.

    Why it matters: nothing of the package can be imported; the GPU is not at fault.

    How to fix: install the Microsoft Visual C++ redistributable (x64).

    When it is wrong: a damaged installation shows the same; then install the package anew.

    Sources: torch/__init__.py, which names the redistributable; TensorFlow's error page for this text.
    """
    errors = [one for one in case.errors("windows-dll-load-failed") if _is_cpu_library(one)]
    if not errors or case.saw("onnxruntime-cuda-provider-failed"):
        return
    yield Problem(
        subject="Visual C++ runtime",
        what="A DLL that does not belong to CUDA cannot be loaded: the Visual C++ runtime is missing or too old.",
        why="torch's and TensorFlow's libraries need the Microsoft Visual C++ redistributable of 2022 or newer.",
        evidence=quoted(errors),
        remedies=(
            Remedy(
                Fix(
                    title="Install the Visual C++ redistributable",
                    commands=("winget install --id Microsoft.VCRedist.2015+.x64",),
                    where=Where.WINDOWS,
                    needs_root=True,
                )
            ),
        ),
        confidence=Confidence.LIKELY,
    )


CPU_LIBRARY = re.compile(
    r"fbgemm|c10\.dll|torch_cpu|shm\.dll|torch_python|asmjit|uv\.dll|_pywrap_tensorflow|onnxruntime_pybind11"
)


def _is_cpu_library(error: ErrorSeen) -> bool:
    named = " ".join(error.values.get(key, "") for key in ("library", "module")) or error.text
    return CPU_LIBRARY.search(named.lower()) is not None and not _needs_cuda(error)


RULES = (
    Rule("CD303", "cuda-dll-not-on-path", Severity.ERROR, "Windows: a CUDA DLL is not on PATH", cuda_dll_not_on_path),
    Rule("CD310", "msvc-runtime-missing", Severity.ERROR, "Windows: the Visual C++ runtime is missing", msvc_runtime_missing),
)
