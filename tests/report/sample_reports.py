"""Reports built by hand, one per kind of machine; the goldens render them and the README can quote them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from msgspec import structs

from cudadoctor.model.fact import Known, Missing, MissingReason, OtherSource
from cudadoctor.model.finding import Confidence, Evidence, Finding, Fix, Severity, UnknownRule, Where
from cudadoctor.model.proof import ApiError, Proof, ProofLayer, ProofOutcome
from cudadoctor.model.report import Report, Tool, Verdict
from cudadoctor.model.snapshot import (
    ApiStatus,
    Container,
    Driver,
    EnvironmentKind,
    Gpu,
    Host,
    KernelModule,
    ModuleFlavour,
    Package,
    Platform,
    ProbeRun,
    PythonEnvironment,
    Snapshot,
    Toolkit,
    Torch,
    TorchBuild,
)
from cudadoctor.model.versions import ComputeCapability, CudaVersion, DottedVersion, DriverRelease, SmTarget

T = TypeVar("T")

GIB = 2**30
TOOL = Tool(version="0.1.0", matrices_as_of="2026-11-30")
CREATED = "2026-11-30T12:00:00Z"


def targets(text: str) -> tuple[SmTarget, ...]:
    return tuple(SmTarget.parse(word) for word in text.split())


def nvml(value: T) -> Known[T]:
    return Known(value, "NVML")


def gpu(index: int, name: str, capability: str, memory_gib: int) -> Gpu:
    return Gpu(
        index=index,
        name=nvml(name),
        compute_capability=nvml(ComputeCapability.parse(capability)),
        uuid=nvml(f"GPU-8932f937-d72c-4106-c12f-20bd9faed9{index:02x}"),
        memory_total_bytes=nvml(memory_gib * GIB),
    )


def driver(release: str, supported: str, flavour: ModuleFlavour = ModuleFlavour.OPEN) -> Driver:
    parsed = DriverRelease.parse(release)
    return Driver(
        driver_release=Known(parsed, "NVML", others=(OtherSource("procfs", release),)),
        driver_cuda_version=nvml(CudaVersion.parse(supported)),
        kernel_module=Known(KernelModule(driver_release=parsed, flavour=flavour), "procfs"),
        cu_init=Known(ApiStatus(code=0), "driver child"),
    )


def ubuntu() -> Host:
    return Host(
        platform=Known(Platform.LINUX, "uname"),
        architecture=Known("x86_64", "uname"),
        os_name=Known("Ubuntu 24.04.1 LTS", "os-release"),
        os_id=Known("ubuntu", "os-release"),
        os_version=Known(DottedVersion.parse("24.04"), "os-release"),
        glibc=Known(DottedVersion.parse("2.39"), "ldd"),
    )


def toolkit(release: str, codes: str, root: str = "/usr/local/cuda") -> Toolkit:
    return Toolkit(
        root=root,
        nvcc=Known(f"{root}/bin/nvcc", "CUDA_HOME"),
        toolkit_version=Known(CudaVersion.parse(release), "nvcc --version"),
        targets=Known(targets(codes), "nvcc --list-gpu-code"),
        found_by=("CUDA_HOME", "PATH"),
        chosen_for_builds=True,
    )


def torch(release: str, cuda: str, codes: str, *, cudnn: str, available: bool = True) -> Torch:
    return Torch(
        torch_version=Known(release, "torch child"),
        build=Known(TorchBuild.CUDA, "torch child"),
        torch_cuda_version=Known(CudaVersion.parse(cuda), "torch child"),
        arch_list=Known(targets(codes), "libtorch_cuda.so"),
        is_available=Known(available, "torch child"),
        cudnn_version=Known(DottedVersion.parse(cudnn), "nvidia-cudnn-cu12"),
        nccl_version=Known(DottedVersion.parse("2.21.5"), "nvidia-nccl-cu12"),
    )


def venv(torch_of_it: Known[Torch] | Missing) -> PythonEnvironment:
    return PythonEnvironment(
        executable=Known("/home/alice/project/.venv/bin/python", "VIRTUAL_ENV"),
        chosen_because="active venv",
        python_version=Known(DottedVersion.parse("3.12.3"), "child"),
        kind=Known(EnvironmentKind.VENV, "child"),
        installer=Known("pip", "child"),
        torch=torch_of_it,
        packages=Known((Package(name="torch", package_version="2.5.1+cu124"),), "importlib.metadata"),
    )


KERNELS = ("gemm_f32_naive_sm50", "gemm_f16_tiled_sm50", "attention_f32_fused_sm50", "attention_f16_fused_sm50")


def passed(
    layer: ProofLayer, number: int, target: str, times: Sequence[float], kernels: Sequence[str] = KERNELS
) -> tuple[Proof, ...]:
    return tuple(
        Proof(
            layer=layer,
            gpu=number,
            kernel=kernel,
            target=target,
            outcome=ProofOutcome.PASSED,
            max_error=2.1e-6,
            tolerance=1.2e-4,
            compile_s=0.041,
            run_ms=time,
            tflops=8.4 / time,
        )
        for kernel, time in zip(kernels, times, strict=True)
    )


def skipped(layer: ProofLayer, number: int, because: str, kernels: Sequence[str] = KERNELS) -> tuple[Proof, ...]:
    return tuple(
        Proof(layer=layer, gpu=number, kernel=kernel, target=None, outcome=ProofOutcome.SKIPPED, because=because)
        for kernel in kernels
    )


TORCH_KERNELS = ("allocation", "matmul", "sdpa", "conv")


def healthy_h100() -> Report:
    """One H100, everything in order."""
    codes = "sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_89 sm_90"
    return Report(
        tool=TOOL,
        created=CREATED,
        verdict=Verdict.HEALTHY,
        summary="No problems: driver, toolkit and torch are proven to work on the GPU.",
        proofs=(
            *passed(ProofLayer.DRIVER_JIT, 0, "compute_50", (0.31, 0.12, 0.52, 0.44)),
            *passed(ProofLayer.NVRTC, 0, "sm_90", (0.30, 0.11, 0.51, 0.43)),
            *passed(ProofLayer.NVCC, 0, "sm_90", (0.30, 0.11, 0.51, 0.43)),
            *passed(ProofLayer.TORCH, 0, "sm_90", (0.02, 0.05, 0.08, 0.20), TORCH_KERNELS),
        ),
        snapshot=Snapshot(
            host=ubuntu(),
            driver=driver("580.95.05", "13.0"),
            gpus=nvml((gpu(0, "NVIDIA H100 80GB HBM3", "9.0", 80),)),
            toolkits=Known((toolkit("12.6.85", f"{codes} sm_90a", "/usr/local/cuda-12.6"),), "search"),
            python=venv(
                Known(torch("2.5.1+cu124", "12.4", "sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90", cudnn="9.1.0"), "torch child")
            ),
            container=Container(kind=Missing(MissingReason.NOT_APPLICABLE)),
            probe_runs=(
                ProbeRun(probe="driver", seconds=0.21, outcome="ok"),
                ProbeRun(probe="torch", seconds=3.02, outcome="ok"),
            ),
        ),
        seconds=3.9,
    )


def _no_kernel(number: int) -> tuple[Proof, ...]:
    error = ApiError(209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device")
    return tuple(
        Proof(layer=ProofLayer.TORCH, gpu=number, kernel=kernel, target="sm_120", outcome=ProofOutcome.FAILED, error=error)
        for kernel in ("matmul", "sdpa")
    )


ARCH_MISSING = Finding(
    code="CD412",
    name="arch-missing-in-wheel",
    severity=Severity.ERROR,
    tags=("gpu-newer-than-build",),
    subject="GPU 0",
    what="torch 2.5.1+cu124 has no code for compute capability 12.0 (newest sm_90, no PTX).",
    why='Every kernel launch fails with error 209, "no kernel image is available for execution on the device".',
    explains=("CD802",),
    evidence=(
        Evidence(
            fact="python.torch.arch_list", value="sm_50, sm_60, sm_70, sm_75, sm_80, sm_86, sm_90", source="libtorch_cuda.so"
        ),
        Evidence(fact="gpus[0].compute_capability", value="12.0", source="NVML"),
    ),
    fixes=(
        Fix(
            title="Install a torch build that has sm_120",
            commands=("pip install --upgrade torch --index-url https://download.pytorch.org/whl/cu130",),
            where=Where.VENV,
            rechecked=True,
            verify=("python -c 'import torch; print(torch.ones(1).cuda())'",),
        ),
        Fix(title="Build torch from source with TORCH_CUDA_ARCH_LIST=12.0 and CUDA 12.8 or newer", where=Where.VENV),
    ),
    references=("https://pytorch.org/get-started/locally/",),
)


def rtx_5090_old_wheel() -> Report:
    """A GPU that is newer than the torch wheel and the toolkit (machine B of the contract)."""
    cannot = "nvcc 12.6 cannot target sm_120"
    own_kernels = Finding(
        code="CD802",
        name="torch-proof-fails",
        severity=Severity.ERROR,
        subject="GPU 0",
        what="A kernel run through torch failed: error 209.",
        root=False,
        evidence=tuple(
            Evidence(fact=f"proofs.torch.{kernel}", value="error 209", source="sm_120") for kernel in ("matmul", "sdpa")
        ),
    )
    too_old = Finding(
        code="CD207",
        name="toolkit-too-old",
        severity=Severity.WARNING,
        subject="nvcc 12.6",
        what="nvcc 12.6 cannot target sm_120; 12.8 or newer can.",
        why="Matters only when you compile.",
        fixes=(
            Fix(
                title="Install a newer toolkit beside this one",
                commands=("sudo apt-get install cuda-toolkit-12-8",),
                needs_root=True,
            ),
        ),
    )
    return Report(
        tool=TOOL,
        created=CREATED,
        verdict=Verdict.PROBLEMS,
        summary="2 problems, 1 to fix first: torch. Driver and GPU are proven to work.",
        findings=(ARCH_MISSING, too_old, own_kernels),
        proofs=(
            *passed(ProofLayer.DRIVER_JIT, 0, "compute_50", (0.31, 0.12, 0.52, 0.44)),
            *skipped(ProofLayer.NVRTC, 0, "NVRTC 12.6 cannot target sm_120"),
            *skipped(ProofLayer.NVCC, 0, cannot),
            *_no_kernel(0),
        ),
        snapshot=Snapshot(
            host=ubuntu(),
            driver=driver("580.95.05", "13.0"),
            gpus=nvml((gpu(0, "NVIDIA GeForce RTX 5090", "12.0", 32),)),
            toolkits=Known((toolkit("12.6.85", "sm_50 sm_60 sm_70 sm_80 sm_90 sm_90a", "/usr/local/cuda-12.6"),), "search"),
            python=venv(
                Known(torch("2.5.1+cu124", "12.4", "sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90", cudnn="9.1.0"), "torch child")
            ),
        ),
        seconds=3.9,
    )


def no_gpu() -> Report:
    """A machine without a GPU, a driver and torch."""
    absent = Missing(MissingReason.NOT_FOUND, "libnvidia-ml.so.1: cannot open shared object file", "NVML")
    return Report(
        tool=TOOL,
        created=CREATED,
        verdict=Verdict.PROBLEMS,
        summary="1 problem: this machine has no NVIDIA GPU.",
        findings=(
            Finding(
                code="CD101",
                name="no-nvidia-gpu",
                severity=Severity.ERROR,
                subject="machine",
                what="No NVIDIA GPU is on the PCI bus (2 display controllers, none of vendor 10de).",
                why="CUDA needs one. Nothing else about the driver can be judged here.",
                evidence=(Evidence(fact="driver.pci_devices", value="1234:1111, 1af4:1050", source="sysfs"),),
                fixes=(
                    Fix(
                        title="Run this on a machine with an NVIDIA GPU, or ask about one that is not here",
                        commands=("cudadoctor preflight --gpu H100",),
                    ),
                ),
            ),
        ),
        unknown=(
            UnknownRule("CD102", "driver-too-old", "not found (NVML): libnvidia-ml.so.1: cannot open shared object file"),
            UnknownRule("CD103", "nvml-version-mismatch", "not found (NVML): libnvidia-ml.so.1: cannot open shared object file"),
        ),
        proofs=skipped(ProofLayer.DRIVER_JIT, 0, "no GPU"),
        snapshot=Snapshot(
            host=ubuntu(),
            driver=Driver(driver_release=absent, driver_cuda_version=absent, nvml=absent),
            gpus=Known((), "PCI"),
            toolkits=Known((), "search"),
            python=venv(Missing(MissingReason.NOT_FOUND, "No module named 'torch'", "torch child")),
        ),
        seconds=0.3,
    )


def sick_node() -> Report:
    """Eight H100s, one of which fell off the bus; in a container."""
    lost = structs.replace(
        gpu(3, "NVIDIA H100 80GB HBM3", "9.0", 80),
        error="GPU is lost. Reboot the system to recover this GPU",
        name=Missing(MissingReason.FAILED, "GPU is lost", "NVML"),
        memory_total_bytes=Missing(MissingReason.FAILED, "GPU is lost", "NVML"),
        compute_capability=Missing(MissingReason.FAILED, "GPU is lost", "NVML"),
    )
    well = [number for number in range(8) if number != 3]
    lost_error = ApiError(999, "CUDA_ERROR_UNKNOWN", "unknown error")
    return Report(
        tool=TOOL,
        created=CREATED,
        node="gpu-a17",
        verdict=Verdict.PROBLEMS,
        summary="1 problem to fix first: GPU 3 fell off the bus. The other 7 GPUs are proven to work.",
        findings=(
            Finding(
                code="CD510",
                name="gpu-lost",
                severity=Severity.ERROR,
                subject="GPU 3",
                what='GPU 3 no longer answers: NVML says "GPU is lost", and the kernel log has Xid 79 (fallen off the bus).',
                why="Jobs that touch it hang or fail with error 999; it takes a reset, often a power cycle, to bring it back.",
                confidence=Confidence.LIKELY,
                explains=("CD801",),
                evidence=(Evidence(fact="gpus[3].error", value="GPU is lost", source="NVML"),),
                fixes=(
                    Fix(
                        title="Drain the node, then reboot it",
                        commands=("sudo reboot",),
                        where=Where.HOST,
                        needs_root=True,
                        needs_reboot=True,
                    ),
                    Fix(title="If it comes back lost, reseat or replace the GPU", where=Where.HOST),
                ),
            ),
            *(
                Finding(
                    code="CD530",
                    name="benign-persistence-off",
                    severity=Severity.NOTE,
                    subject=f"GPU {n}",
                    what="Persistence mode is off, so the first CUDA call is slow.",
                )
                for n in well
            ),
            Finding(
                code="CD801",
                name="proof-failed",
                severity=Severity.ERROR,
                subject="driver on GPU 3",
                what="The context could not be made: error 999.",
                root=False,
            ),
        ),
        proofs=(
            *(
                proof
                for n in well
                for proof in passed(ProofLayer.DRIVER_JIT, n, "compute_50", (0.31, 0.12, 0.52, 0.44 + n / 100))
            ),
            Proof(ProofLayer.DRIVER_JIT, 3, "gemm_f32_naive_sm50", "compute_50", ProofOutcome.FAILED, lost_error),
            *(proof for n in well for proof in passed(ProofLayer.TORCH, n, "sm_90", (0.02, 0.05, 0.08, 0.20), TORCH_KERNELS)),
            Proof(ProofLayer.NCCL, None, "all-reduce", None, ProofOutcome.SKIPPED, because="a GPU is lost"),
        ),
        snapshot=Snapshot(
            host=ubuntu(),
            driver=driver("550.144.03", "12.4", ModuleFlavour.PROPRIETARY),
            gpus=nvml(tuple(lost if n == 3 else gpu(n, "NVIDIA H100 80GB HBM3", "9.0", 80) for n in range(8))),
            toolkits=Known((), "search"),
            python=venv(
                Known(torch("2.5.1+cu124", "12.4", "sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90", cudnn="9.1.0"), "torch child")
            ),
            container=Container(
                kind=Known("docker", "/.dockerenv"), injected_libraries=Known(("libcuda.so.1", "libnvidia-ml.so.1"), "mounts")
            ),
        ),
        seconds=6.2,
    )


def undetermined() -> Report:
    """A driver that hangs: nothing wrong was found, and nothing is proven (machine X1 of the contract)."""
    hang = Missing(MissingReason.TIMEOUT, "no answer within 4 s", "nvidia-smi")
    crash = Missing(MissingReason.CRASHED, "import torch died of SIGSEGV", "torch child")
    return Report(
        tool=TOOL,
        created=CREATED,
        verdict=Verdict.UNDETERMINED,
        summary="Undetermined: nvidia-smi does not return and import torch crashes, so nothing above them could be judged.",
        unknown=(
            UnknownRule("CD102", "driver-too-old", "timeout (nvidia-smi): no answer within 4 s"),
            UnknownRule("CD103", "nvml-version-mismatch", "timeout (nvidia-smi): no answer within 4 s"),
            UnknownRule("CD412", "arch-missing-in-wheel", "crashed (torch child): import torch died of SIGSEGV"),
        ),
        proofs=tuple(
            Proof(ProofLayer.DRIVER_JIT, None, kernel, None, ProofOutcome.UNKNOWN, because="cuInit did not return within 4 s")
            for kernel in KERNELS
        ),
        snapshot=Snapshot(
            host=ubuntu(),
            driver=Driver(driver_release=hang, driver_cuda_version=hang, nvml=hang),
            gpus=hang,
            toolkits=Known((toolkit("12.6.85", "sm_50 sm_90a", "/usr/local/cuda-12.6"),), "search"),
            python=venv(crash),
            probe_runs=(ProbeRun(probe="driver", seconds=4.0, outcome="timeout", detail="nvidia-smi"),),
        ),
        seconds=4.6,
    )


SAMPLES = {
    "healthy_h100": healthy_h100,
    "rtx_5090_old_wheel": rtx_5090_old_wheel,
    "no_gpu": no_gpu,
    "sick_node": sick_node,
    "undetermined": undetermined,
}
