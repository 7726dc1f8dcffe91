"""Rules about settings in the environment that slow programs down or are not understood (CD7xx)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from cudadoctor.model.fact import known
from cudadoctor.model.finding import Evidence, Severity
from cudadoctor.model.proof import ProofLayer, ProofOutcome
from cudadoctor.model.snapshot import TorchBuild
from cudadoctor.rules import driver_fixes
from cudadoctor.rules.circumstances import variables
from cudadoctor.rules.engine import Case, Problem, Rule
from cudadoctor.rules.evidence import seen, variable_evidence
from cudadoctor.rules.questions import proofs_with_error, torch, torch_build

MODULE_LOADING = "CUDA_MODULE_LOADING"
ALLOC_CONF = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
CUDA_ERROR_JIT_COMPILATION_DISABLED = 223
"""cuda.h."""
ON = frozenset({"1", "true", "yes", "on"})


def ptx_jit_forced(case: Case) -> Iterable[Problem]:
    """CUDA_FORCE_PTX_JIT makes the driver ignore machine code and compile PTX instead.

    What it checks: the variable, and whether torch fails to compute while plain kernels run.

    Why it matters: libraries that carry machine code only (most of torch's, cuBLAS, cuDNN) fail with error 209 or an internal one
    of their own; the rest starts slowly.

    How to fix: unset it.

    When it is wrong: it is meant for testing that a program carries PTX.

    Sources: CUDA C++ Programming Guide, CUDA Environment Variables; compatibility guides of new architectures.
    """
    yield from _switched_on(
        case,
        ("CUDA_FORCE_PTX_JIT", "CUDA_FORCE_JIT"),
        "makes the driver ignore machine code and compile PTX instead.",
        "Libraries without PTX then fail with error 209 or CUBLAS_STATUS_INTERNAL_ERROR, and everything starts slowly.",
        _only_torch_fails(case),
    )


def ptx_jit_disabled(case: Case) -> Iterable[Problem]:
    """CUDA_DISABLE_PTX_JIT keeps the driver from compiling PTX.

    What it checks: the variable, and whether a kernel's PTX is refused with error 223.

    Why it matters: programs that have no machine code for this GPU cannot start, although their PTX would do.

    How to fix: unset it.

    When it is wrong: it is meant for testing that a program carries machine code for a GPU.

    Sources: CUDA C++ Programming Guide, CUDA Environment Variables.
    """
    yield from _switched_on(
        case,
        ("CUDA_DISABLE_PTX_JIT", "CUDA_DISABLE_JIT"),
        "keeps the driver from compiling PTX.",
        "A program without machine code for this GPU fails although its PTX would run.",
        proofs_with_error(case, CUDA_ERROR_JIT_COMPILATION_DISABLED),
    )


def launch_blocking_on(case: Case) -> Iterable[Problem]:
    """CUDA_LAUNCH_BLOCKING is on: every kernel launch waits for its end.

    What it checks: the variable.

    Why it matters: it helps to find the failing kernel, and costs much speed when it is left on.

    How to fix: unset it when the search is over.

    When it is wrong: while debugging it is right.

    Sources: CUDA C++ Programming Guide, CUDA Environment Variables.
    """
    yield from _switched_on(
        case,
        ("CUDA_LAUNCH_BLOCKING",),
        "makes every kernel launch wait for its end.",
        "It is for finding the kernel that fails; left on it slows programs down.",
    )


def memory_caching_off(case: Case) -> Iterable[Problem]:
    """PYTORCH_NO_CUDA_MEMORY_CACHING is on: each allocation of torch goes to the driver.

    What it checks: the variable.

    Why it matters: it is for memory checkers; left on, torch is many times slower.

    How to fix: unset it.

    When it is wrong: under compute-sanitizer it is right.

    Sources: PyTorch documentation, CUDA environment variables.
    """
    yield from _switched_on(
        case,
        ("PYTORCH_NO_CUDA_MEMORY_CACHING",),
        "makes every allocation of torch go to the driver.",
        "It is for memory checkers; left on, programs are many times slower.",
    )


def jit_cache_off(case: Case) -> Iterable[Problem]:
    """CUDA_CACHE_DISABLE is on: what the driver compiles from PTX is thrown away.

    What it checks: the variable.

    Why it matters: programs with PTX for a newer GPU compile it at every start, which can take minutes.

    How to fix: unset it; where the home folder is slow or full, set CUDA_CACHE_PATH.

    When it is wrong: for measuring compile times it is right.

    Sources: CUDA C++ Programming Guide, CUDA Environment Variables.
    """
    yield from _switched_on(
        case,
        ("CUDA_CACHE_DISABLE",),
        "throws away what the driver compiles from PTX.",
        "Programs with PTX compile it again at every start.",
    )


def _only_torch_fails(case: Case) -> tuple[Evidence, ...]:
    """The computations of torch that failed, where everything below torch that ran is proven."""
    failed = [proof for proof in case.proofs if proof.outcome is ProofOutcome.FAILED]
    if any(proof.layer is not ProofLayer.TORCH for proof in failed):
        return ()
    words = ((proof, proof.error.name if proof.error is not None else proof.because or "") for proof in failed)
    return tuple(
        Evidence(fact=f"proofs.torch.{proof.kernel}", value=text, source=proof.target or "torch") for proof, text in words
    )


def _switched_on(case: Case, names: tuple[str, ...], does: str, why: str, broken: tuple[Evidence, ...] = ()) -> Iterable[Problem]:
    """A problem for each of the variables that is on: an error where proofs failed as it makes them fail."""
    values = known(case.snapshot.environment)
    for name in names:
        value = values.get(name)
        if value is not None and value.strip().lower() in ON:
            yield Problem(
                subject=name,
                what=f"{name}={value} {does}",
                why=why,
                evidence=(*variable_evidence(name, value), *broken),
                remedies=driver_fixes.unset(case, name),
                severity=Severity.ERROR if broken else None,
            )


def module_loading_invalid(case: Case) -> Iterable[Problem]:
    """CUDA_MODULE_LOADING has a value that the driver does not know.

    What it checks: values other than LAZY, EAGER and DEFAULT.

    Why it matters: the driver ignores it, so what was meant does not happen.

    How to fix: LAZY (the default since CUDA 12.2 on Linux) or EAGER.

    When it is wrong: a driver newer than this text may know more values.

    Sources: CUDA C++ Programming Guide, Lazy Loading.
    """
    value = known(case.snapshot.environment).get(MODULE_LOADING)
    if value is None or value.strip() in ("LAZY", "EAGER", "DEFAULT", ""):
        return
    yield Problem(
        subject=MODULE_LOADING,
        what=f"{MODULE_LOADING}={value!r} is not a value that the driver knows (LAZY, EAGER); it is ignored.",
        why="Kernels are loaded in the default way, whatever was meant.",
        evidence=variable_evidence(MODULE_LOADING, value),
        remedies=driver_fixes.set_to(case, MODULE_LOADING, value.strip().upper())
        if value.strip().upper() in ("LAZY", "EAGER")
        else driver_fixes.unset(case, MODULE_LOADING),
    )


_OPTION = re.compile(r"\s*([a-z_0-9]+)\s*:\s*(\[[^\]]*\]|[^,\[\]]+)", re.IGNORECASE)
_OPTION_NAMES = frozenset(
    {
        "backend",
        "expandable_segments",
        "garbage_collection_threshold",
        "graph_capture_record_stream_reuse",
        "max_non_split_rounding_mb",
        "max_split_size_mb",
        "per_process_memory_fraction",
        "pinned_num_register_threads",
        "pinned_reserve_segment_size_mb",
        "pinned_use_background_threads",
        "pinned_use_cuda_host_register",
        "pinned_use_hip_host_register",
        "release_lock_on_cudamalloc",
        "release_lock_on_hipmalloc",
        "roundup_bypass_threshold_mb",
        "roundup_power2_divisions",
        "throw_on_cudamalloc_oom",
        "use_uvm",
    }
)
"""Options of torch's CUDA allocator up to 2.15 (CUDAAllocatorConfig, AcceleratorAllocatorConfig)."""


def alloc_conf_malformed(case: Case) -> Iterable[Problem]:
    """PYTORCH_CUDA_ALLOC_CONF (PYTORCH_ALLOC_CONF) cannot be parsed by torch.

    What it checks: the form `option:value,option:value`, the names of the options, and torch's own error.

    Why it matters: torch raises an error at the first use of the GPU.

    How to fix: write option:value pairs separated by commas, without spaces or quotes inside.

    When it is wrong: a torch newer than this text may know more options; an unknown name alone is only a remark.

    Sources: PyTorch documentation, CUDA semantics, memory management.
    """
    texts = seen(case, "alloc-conf-malformed")
    values = variables(case)
    if texts:
        shown = [evidence for name in ALLOC_CONF if name in values for evidence in variable_evidence(name, values[name])]
        yield Problem(
            subject=ALLOC_CONF[1],
            what="torch cannot parse its allocator's configuration.",
            why="It has the form option:value,option:value; torch stops at the first option that it does not know.",
            evidence=(*texts, *shown),
            remedies=driver_fixes.unset(case, ALLOC_CONF[1]),
        )
        return
    for name in ALLOC_CONF:
        value = known(case.snapshot.environment).get(name)
        fault = _conf_fault(value) if value is not None and value.strip() else None
        if value is not None and fault is not None:
            words, severity = fault
            yield Problem(
                subject=name,
                what=f"{name}={value!r}: {words}.",
                why="torch raises an error at the first use of the GPU where it cannot parse the value.",
                evidence=variable_evidence(name, value),
                severity=severity,
                remedies=driver_fixes.unset(case, name),
            )


def _conf_fault(value: str) -> tuple[str, Severity] | None:
    """What is wrong with an allocator configuration, and how bad; None where it is well formed."""
    position = 0
    while position < len(value):
        match = _OPTION.match(value, position)
        end = match.end() if match is not None else position
        if match is None or (end < len(value) and value[end] != ","):
            return f"{value[position:].split(',')[0]!r} is not option:value", Severity.WARNING
        option, setting = match[1].lower(), match[2].strip()
        if option not in _OPTION_NAMES:
            return f"the option {option!r} is not known", Severity.NOTE
        if option == "max_split_size_mb" and setting.isdigit() and int(setting) <= 20:
            return "max_split_size_mb has to be above 20", Severity.WARNING
        if option == "expandable_segments" and setting not in ("True", "False"):
            return "expandable_segments takes True or False", Severity.WARNING
        position = end + 1
    return None


_NCCL_SWITCHES: Mapping[str, str] = {
    "NCCL_P2P_DISABLE": "copies between GPUs go through host memory",
    "NCCL_SHM_DISABLE": "processes of one host talk over the network",
    "NCCL_IB_DISABLE": "InfiniBand and RoCE are not used",
    "NCCL_NVLS_ENABLE": "the switch's reductions are not used",
}


def nccl_setting_left_on(case: Case) -> Iterable[Problem]:
    """A variable that works around an NCCL fault is set, and slows communication down.

    What it checks: NCCL_P2P_DISABLE, NCCL_SHM_DISABLE and NCCL_IB_DISABLE set to 1, NCCL_NVLS_ENABLE set to 0, NCCL_DEBUG set to
    TRACE, and NCCL_SOCKET_IFNAME that names the loopback.

    Why it matters: such switches are set to get past a hang and then forgotten; several GPUs work at a fraction of their speed.

    How to fix: unset it and try again.

    When it is wrong: on machines without peer access (many with GeForce GPUs, some virtual machines) they are needed.

    Sources: NCCL documentation, environment variables.
    """
    values = known(case.snapshot.environment)
    for name, effect in _NCCL_SWITCHES.items():
        bad = "0" if name.endswith("_ENABLE") else "1"
        if values.get(name, "").strip() == bad:
            yield _nccl_problem(case, name, values[name], f"{effect}.")
    if values.get("NCCL_DEBUG", "").strip().upper() == "TRACE":
        yield _nccl_problem(case, "NCCL_DEBUG", values["NCCL_DEBUG"], "every call is written to the log.")
    interface = values.get("NCCL_SOCKET_IFNAME", "").strip()
    if interface in ("lo", "=lo"):
        yield _nccl_problem(case, "NCCL_SOCKET_IFNAME", interface, "only the loopback is used; several hosts cannot connect.")


def _nccl_problem(case: Case, name: str, value: str, effect: str) -> Problem:
    return Problem(
        subject=name,
        what=f"{name}={value}: {effect}",
        why="It is mostly set to get past a fault, and slows communication down when it stays.",
        evidence=variable_evidence(name, value),
        remedies=driver_fixes.unset(case, name),
    )


def tf32_overridden(case: Case) -> Iterable[Problem]:
    """NVIDIA_TF32_OVERRIDE=0 switches TF32 off for every library.

    What it checks: the variable, with a CUDA build of torch.

    Why it matters: float32 matrix products do not use the tensor cores, whatever the program asks for.

    How to fix: unset it where speed matters more than the last bits.

    When it is wrong: for comparing results bit by bit it is right.

    Sources: cuBLAS and cuDNN documentation, NVIDIA_TF32_OVERRIDE.
    """
    value = known(case.snapshot.environment).get("NVIDIA_TF32_OVERRIDE")
    if value is None or value.strip() != "0":
        return
    build = torch(case.snapshot)
    asks = " (torch's own setting is ignored)" if build is not None and torch_build(build) is TorchBuild.CUDA else ""
    yield Problem(
        subject="NVIDIA_TF32_OVERRIDE",
        what=f"NVIDIA_TF32_OVERRIDE=0 switches TF32 off for every library{asks}.",
        why="float32 matrix products then do not use the tensor cores.",
        evidence=variable_evidence("NVIDIA_TF32_OVERRIDE", value),
        remedies=driver_fixes.unset(case, "NVIDIA_TF32_OVERRIDE"),
    )


RULES = (
    Rule("CD706", "ptx-jit-forced", Severity.WARNING, "CUDA_FORCE_PTX_JIT is on", ptx_jit_forced),
    Rule("CD707", "ptx-jit-disabled", Severity.WARNING, "CUDA_DISABLE_PTX_JIT is on", ptx_jit_disabled),
    Rule("CD708", "launch-blocking-on", Severity.NOTE, "CUDA_LAUNCH_BLOCKING is on", launch_blocking_on),
    Rule("CD709", "module-loading-invalid", Severity.WARNING, "CUDA_MODULE_LOADING has an unknown value", module_loading_invalid),
    Rule("CD710", "alloc-conf-malformed", Severity.ERROR, "torch's allocator configuration is malformed", alloc_conf_malformed),
    Rule("CD711", "nccl-setting-left-on", Severity.NOTE, "An NCCL workaround is switched on", nccl_setting_left_on),
    Rule("CD715", "memory-caching-off", Severity.NOTE, "torch's memory cache is switched off", memory_caching_off),
    Rule("CD716", "jit-cache-off", Severity.NOTE, "The driver's compile cache is switched off", jit_cache_off),
    Rule("CD718", "tf32-overridden", Severity.NOTE, "NVIDIA_TF32_OVERRIDE switches TF32 off", tf32_overridden),
)
