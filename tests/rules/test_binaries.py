"""Findings from the binaries of installed packages: code by module, and libraries that would be loaded."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from cudadoctor.model.binaries import (
    BinaryFile,
    BinaryPackage,
    Code,
    LibraryProblem,
    LibraryProblemKind,
    LibraryUse,
    MissingLibrary,
    ModuleGroup,
    Place,
    Wanted,
)
from cudadoctor.model.fact import Known, Missing, MissingReason
from cudadoctor.model.finding import Finding, Severity
from cudadoctor.model.proof import Proof, ProofLayer, ProofOutcome
from cudadoctor.model.snapshot import LibraryCopy, LibraryOrigin, Package, Snapshot
from cudadoctor.model.versions import PtxIsa, SmTarget
from cudadoctor.rules.engine import Case, Outcome, evaluate
from cudadoctor.rules.registry import RULES
from tests.rules.builders import GENERATIONS, MATRICES, NO_GPU, gpu, healthy, judged, known, outcome, with_environment

SITE = "/home/user/venv/lib/python3.12/site-packages"
FOR_TORCH = ("libc10.so", "libtorch_cuda.so", "libcudart.so.12")


def modules(code: str, count: int = 40, isa: str = "8.4", *, tiny: bool = False) -> ModuleGroup:
    """`count` modules, each with all of this code."""
    targets = [SmTarget.parse(word) for word in code.split()]
    held = tuple(Code(target, PtxIsa.parse(isa) if str(target).startswith("compute") else None) for target in targets)
    return ModuleGroup(Place.REGISTERED, held, count, is_tiny=tiny)


def file(name: str, *groups: ModuleGroup, needed: tuple[str, ...] = FOR_TORCH, **more: Any) -> BinaryFile:
    return BinaryFile(f"{SITE}/{name}", 1 << 24, groups, needed, **more)


def extension(name: str, *groups: ModuleGroup, **more: Any) -> BinaryPackage:
    """A package with one extension of torch."""
    return BinaryPackage(name, (file(f"{name.replace('-', '_')}/_C.so", *groups, **more),))


def without(*names: str, elsewhere: tuple[str, ...] = (), wanted: Wanted = Wanted.NEEDED) -> dict[str, Any]:
    lacking = tuple(MissingLibrary(name, f"{SITE}/x.so", wanted, elsewhere) for name in names)
    return {"missing": lacking, "needed": (*FOR_TORCH[:2], *names)}


def machine(*packages: BinaryPackage, base: Snapshot | None = None) -> Snapshot:
    """A healthy machine (RTX 4090, torch of CUDA 12.8) with these binaries."""
    return structs.replace(base or healthy(), binaries=known(packages, "files of the packages"))


def findings(snapshot: Snapshot, name: str) -> list[Finding]:
    return [finding for finding in judged(snapshot).findings if finding.name == name]


def loud(snapshot: Snapshot) -> list[tuple[str, Severity]]:
    """Errors and warnings."""
    return [(f.name, f.severity) for f in judged(snapshot).findings if f.severity is not Severity.NOTE]


# GPU code


def test_an_extension_without_code_for_the_gpu_is_an_error() -> None:
    (finding,) = findings(machine(extension("flash-attn", modules("sm_90"))), "extension-arch-missing")
    assert (finding.severity, finding.subject) == (Severity.ERROR, "package flash-attn")
    assert "none of its 40 modules" in finding.what
    assert "sm_90 40" in finding.what
    assert "209" in finding.why
    assert "Predicted" in finding.why
    assert finding.tags == ("gpu-older-than-build",)
    assert finding.evidence[0].source.endswith("flash_attn/_C.so")
    commands = [command for fix in finding.fixes for command in fix.commands]
    assert any("TORCH_CUDA_ARCH_LIST=8.9" in command for command in commands)


def test_a_newer_gpu_is_met_with_a_newer_release_first() -> None:
    snapshot = machine(extension("mamba-ssm", modules("sm_80 sm_86 sm_90")), base=GENERATIONS["blackwell"])
    (finding,) = findings(snapshot, "extension-arch-missing")
    assert finding.tags == ("gpu-newer-than-build",)
    assert "--upgrade" in finding.fixes[0].commands[0]


def test_building_is_not_advised_where_the_sources_do_not_support_the_gpu() -> None:
    (finding,) = findings(
        machine(extension("flash-attn", modules("sm_80 sm_90")), base=GENERATIONS["turing"]), "extension-arch-missing"
    )
    assert [fix.commands[0].endswith("pip uninstall flash-attn") for fix in finding.fixes] == [True]


@pytest.mark.parametrize(
    ("groups", "label"),
    [
        ((modules("sm_80 sm_90"),), "machine code of the same major"),
        ((modules("sm_90"), modules("sm_89", 3)), "some modules: kernels are picked by GPU"),
        ((modules("sm_89"), modules("sm_50", 2, tiny=True)), "stubs do not count"),
        ((), "no code at all"),
        ((modules("lto_90"),), "linked by the library itself"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_code_that_serves_is_no_finding(groups: tuple[ModuleGroup, ...], label: str) -> None:
    snapshot = machine(extension("vllm", *groups))
    assert loud(snapshot) == []
    assert outcome(snapshot, "extension-arch-missing") is Outcome.PASS
    assert outcome(snapshot, "benign-extension-jit") is Outcome.PASS


def test_ptx_that_the_driver_compiles_is_a_note() -> None:
    snapshot = machine(extension("apex", modules("sm_50 compute_80")))
    (finding,) = findings(snapshot, "benign-extension-jit")
    assert finding.severity is Severity.NOTE
    assert loud(snapshot) == []


def test_ptx_newer_than_the_driver_is_its_own_error() -> None:
    snapshot = machine(extension("apex", modules("compute_80", isa="9.0")), base=GENERATIONS["ampere"])
    (finding,) = findings(snapshot, "ptx-newer-than-driver")
    assert (finding.severity, finding.subject) == (Severity.ERROR, "package apex")
    assert "CUDA 13.0" in finding.what
    assert "12.2" in finding.what
    assert "222" in finding.why
    assert findings(snapshot, "extension-arch-missing") == []


def test_a_driver_newer_than_every_table_knows_every_ptx() -> None:
    snapshot = machine(extension("apex", modules("compute_120", isa="9.9")), base=GENERATIONS["unheard-of"])
    assert loud(snapshot) == []


@pytest.mark.parametrize("name", ["torchvision", "onnxruntime-gpu", "faiss-gpu", "cupy-cuda12x", "my-own-library"])
def test_what_works_without_its_gpu_code_is_a_warning(name: str) -> None:
    needed = FOR_TORCH if name == "torchvision" else ("libcudart.so.12",)
    snapshot = machine(BinaryPackage(name, (file("x.so", modules("sm_90"), needed=needed),)))
    assert loud(snapshot) == [("extension-arch-missing", Severity.WARNING)]


def test_a_package_that_serves_one_of_two_gpus_is_a_warning() -> None:
    base = healthy()
    both = structs.replace(base, gpus=known((gpu("NVIDIA GeForce RTX 4090", "8.9", 0), gpu("NVIDIA GeForce RTX 2080", "7.5", 1))))
    (finding,) = findings(machine(extension("flash-attn", modules("sm_80")), base=both), "extension-arch-missing")
    assert finding.severity is Severity.WARNING
    assert "2080" in finding.what
    assert "4090" not in finding.what


def test_eight_gpus_make_one_finding() -> None:
    snapshot = machine(extension("flash-attn", modules("sm_80")), base=GENERATIONS["hopper"])
    assert len(findings(snapshot, "extension-arch-missing")) == 1


def test_a_small_helper_does_not_save_a_package() -> None:
    package = BinaryPackage("vllm", (file("a.so", modules("sm_90", 400)), file("b.so", modules("sm_89", 1))))
    assert loud(machine(package)) == [("extension-arch-missing", Severity.ERROR)]


def test_bitsandbytes_is_judged_by_the_library_of_torch_s_cuda() -> None:
    def package(code_128: str, code_124: str) -> BinaryPackage:
        files = (
            file("bitsandbytes/libbitsandbytes_cuda124.so", modules(code_124), needed=("libcudart.so.12",)),
            file("bitsandbytes/libbitsandbytes_cuda128.so", modules(code_128), needed=("libcudart.so.12",)),
        )
        return BinaryPackage("bitsandbytes", files)

    assert loud(machine(package("sm_89", "sm_50"))) == []
    (finding,) = findings(machine(package("sm_50", "sm_89")), "extension-arch-missing")
    assert finding.severity is Severity.ERROR
    assert [item.source.rpartition("_")[2] for item in finding.evidence][:1] == ["cuda128.so"]


def test_device_linked_modules_fail_with_their_own_error() -> None:
    group = structs.replace(modules("sm_90"), is_device_linked=True)
    (finding,) = findings(machine(extension("nvshmem-user", group)), "extension-arch-missing")
    assert "error 500" in finding.why


def test_the_table_of_wheels_is_not_asked_where_the_files_were_read() -> None:
    row = next(row for row in MATRICES.ecosystem.binaries if row.package not in ("torch", "bitsandbytes"))
    listed = (Package(name=row.package, package_version=str(row.version)),)
    base = healthy("NVIDIA GeForce GTX 980", "5.2", archs="sm_50 sm_80")
    base = structs.replace(base, python=structs.replace(base.python, packages=known(listed)))
    read = machine(extension(row.package, modules("sm_50")), base=base)
    assert findings(read, "extension-arch-missing") == []


def test_what_was_not_read_is_unknown_and_never_a_pass() -> None:
    rest = BinaryPackage("other packages", (), complete=False)
    assert outcome(machine(extension("vllm", modules("sm_89")), rest), "extension-arch-missing") is Outcome.UNKNOWN
    cut = extension("vllm", modules("sm_90"), unread="file ends early")
    assert findings(machine(cut), "extension-arch-missing") == []
    crashed = structs.replace(healthy(), binaries=Missing(MissingReason.FAILED, "the probe crashed", "binaries"))
    assert outcome(crashed, "extension-arch-missing") is Outcome.UNKNOWN
    failing = machine(extension("flash-attn", modules("sm_90")), rest)
    assert outcome(failing, "extension-arch-missing") is Outcome.FAIL


def test_without_a_gpu_nothing_is_judged() -> None:
    package = extension("flash-attn", modules("sm_50"), **without("libcufft.so.12"))
    snapshot = machine(package, base=NO_GPU)
    assert outcome(snapshot, "extension-arch-missing") is Outcome.NOT_APPLICABLE
    assert findings(snapshot, "cuda-lib-missing") == []


def test_code_missing_in_torch_explains_its_extensions() -> None:
    base = healthy("NVIDIA GeForce RTX 5090", "12.0", torch="2.5.1+cu124", archs="sm_80 sm_90")
    (finding,) = findings(machine(extension("flash-attn", modules("sm_80 sm_90")), base=base), "extension-arch-missing")
    assert not finding.root


def triton(*targets: str) -> Snapshot:
    base = GENERATIONS["blackwell"]
    listed = known((Package(name="triton", package_version="3.5.1"),))
    ptxas = BinaryFile(f"{SITE}/triton/backends/nvidia/bin/ptxas", 1 << 25, assembles=tuple(map(SmTarget.parse, targets)))
    base = structs.replace(base, python=structs.replace(base.python, packages=listed))
    return machine(BinaryPackage("triton", (ptxas,), package_version="3.5.1"), base=base)


def test_the_ptxas_of_triton_is_judged_by_what_it_names() -> None:
    assert loud(triton("sm_90", "sm_120", "sm_120a")) == []
    assert loud(triton("sm_80", "sm_90a", "sm_100")) == [("ptxas-too-old", Severity.WARNING)]
    (finding,) = findings(triton("sm_80", "sm_90a", "sm_100"), "ptxas-too-old")
    assert "triton 3.5.1 brings a ptxas that does not know sm_120; that of CUDA 12.8 does" in finding.what
    assert finding.evidence[0].value == "newest target sm_100"


# Libraries


def test_an_extension_for_another_cuda_major() -> None:
    snapshot = machine(extension("xformers", modules("sm_80"), **without("libcudart.so.11.0", "libcublas.so.11")))
    assert loud(snapshot) == [("extension-cuda-major-mismatch", Severity.ERROR)]
    (finding,) = findings(snapshot, "extension-cuda-major-mismatch")
    assert finding.subject == "package xformers"
    assert "libcudart.so.11.0" in finding.what
    assert "CUDA 12.8" in finding.what
    assert "Predicted" in finding.why


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("xformers", "xformers --index-url https://download.pytorch.org/whl/cu128"),
        ("cupy-cuda11x", "pip install cupy-cuda12x"),
        ("faiss-gpu-cu11", "pip install faiss-gpu-cu12"),
        ("my-extension", "--no-build-isolation --no-cache-dir my-extension"),
    ],
)
def test_the_build_for_torch_s_cuda(name: str, command: str) -> None:
    snapshot = machine(extension(name, modules("sm_80"), **without("libcudart.so.11.0")))
    (finding,) = findings(snapshot, "extension-cuda-major-mismatch")
    assert finding.fixes[0].commands[-1].endswith(command)


def test_a_copy_of_the_other_major_out_of_the_loader_s_reach_does_not_help() -> None:
    lacking = without("libcudart.so.13", elsewhere=("/usr/local/cuda-13.0/lib64/libcudart.so.13",))
    assert loud(machine(extension("xformers", modules("sm_80"), **lacking))) == [
        ("extension-cuda-major-mismatch", Severity.ERROR)
    ]


def test_copies_that_a_program_may_load_by_path_are_no_fault() -> None:
    lacking = without("libcusparseLt.so.0", elsewhere=("/usr/local/lib/libcusparseLt.so.0",))
    assert loud(machine(extension("some-extension", modules("sm_80"), **lacking))) == []


def test_a_package_without_builds_by_cuda_gets_its_libraries() -> None:
    lacking = without("libcublas.so.11", wanted=Wanted.MAY_DLOPEN)["missing"]
    package = BinaryPackage("ctranslate2", (file("ctranslate2.libs/x.so", modules("sm_80"), needed=(), missing=lacking),))
    (finding,) = findings(machine(package), "extension-cuda-major-mismatch")
    assert "nvidia-cublas-cu11" in finding.fixes[0].commands[0]
    assert "opens them by name" in finding.why


def test_other_packages_of_another_major_are_warnings() -> None:
    lacking = {**without("libcublas.so.11"), "needed": ("libcublas.so.11",)}
    package = BinaryPackage("faiss-gpu-cu11", (file("faiss/x.so", **lacking),))
    assert loud(machine(package)) == [("extension-cuda-major-mismatch", Severity.WARNING)]


@pytest.mark.parametrize(
    ("library", "rule"),
    [
        ("libcudart.so.12", "libcudart-missing"),
        ("libcublas.so.12", "cuda-lib-missing"),
        ("libnvinfer.so.10", "cuda-lib-missing"),
        ("libcudnn.so.9", "libcudnn-missing"),
    ],
)
def test_a_library_that_is_nowhere(library: str, rule: str) -> None:
    snapshot = machine(extension("my-extension", modules("sm_80"), **without(library)))
    assert loud(snapshot) == [(rule, Severity.ERROR)]
    (finding,) = findings(snapshot, rule)
    assert finding.subject == "package my-extension"
    assert library in finding.what


def test_the_file_that_lacks_least_decides() -> None:
    """onnxruntime's TensorRT part is optional: its CUDA part can be loaded, so nothing is wrong."""
    cuda = file("onnxruntime/cuda.so", modules("sm_80"), needed=("libcublas.so.12",))
    tensorrt = file("onnxruntime/tensorrt.so", needed=("libnvinfer.so.10",), missing=without("libnvinfer.so.10")["missing"])
    assert loud(machine(BinaryPackage("onnxruntime-gpu", (cuda, tensorrt)))) == []
    both = structs.replace(cuda, missing=without("libcublas.so.12")["missing"])
    tensorrt = structs.replace(tensorrt, missing=without("libcublas.so.12", "libnvinfer.so.10")["missing"])
    (finding,) = findings(machine(BinaryPackage("onnxruntime-gpu", (both, tensorrt))), "cuda-lib-missing")
    assert finding.severity is Severity.WARNING
    assert "libnvinfer" not in finding.what


def test_cudnn_of_another_major() -> None:
    base = healthy()
    copy = LibraryCopy(
        soname="libcudnn.so.9", path="/usr/lib/libcudnn.so.9", real_path="/usr/lib/libcudnn.so.9", origin=LibraryOrigin.SYSTEM
    )
    base = structs.replace(base, libraries=structs.replace(base.libraries, copies=known((copy,))))
    snapshot = machine(extension("my-extension", modules("sm_80"), **without("libcudnn.so.8")), base=base)
    assert loud(snapshot) == [("cudnn-major-mismatch", Severity.ERROR)]
    (finding,) = findings(snapshot, "cudnn-major-mismatch")
    assert "libcudnn.so.8" in finding.what
    assert "9" in finding.why


def test_libraries_that_only_lie_in_wheels_are_a_note_for_onnxruntime() -> None:
    lacking = without("libcudnn.so.9", elsewhere=(f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9",))["missing"]
    provider = file("onnxruntime/cuda.so", modules("sm_80"), needed=("libcudnn.so.9",), missing=lacking)
    package = BinaryPackage("onnxruntime-gpu", (provider,))
    snapshot = machine(package)
    assert loud(snapshot) == []
    (finding,) = findings(snapshot, "cuda-lib-missing")
    assert finding.severity is Severity.NOTE
    assert finding.fixes[0].commands == (f"export LD_LIBRARY_PATH={SITE}/nvidia/cudnn/lib:$LD_LIBRARY_PATH",)


def test_what_ctranslate2_opens_by_name() -> None:
    lacking = without("libcublas.so.12", "libnccl.so.2", wanted=Wanted.MAY_DLOPEN)["missing"]
    package = BinaryPackage("ctranslate2", (file("ctranslate2.libs/x.so", modules("sm_80"), needed=(), missing=lacking),))
    (finding,) = findings(machine(package), "cuda-lib-missing")
    assert finding.severity is Severity.WARNING
    assert "libcublas.so.12" in finding.what
    assert "libnccl" not in finding.what
    assert loud(machine(structs.replace(package, name="other"))) == []


def test_torch_itself_is_judged_by_its_import_where_that_was_tried() -> None:
    lacking = extension("torch", modules("sm_89"), **without("libcusparse.so.12"))
    assert loud(machine(lacking)) == []
    base = healthy()
    torch = structs.replace(
        base.python.torch.value if isinstance(base.python.torch, Known) else pytest.fail(),
        imports=Missing(MissingReason.NOT_APPLICABLE, "the Python of an unpacked image is not run", "files"),
    )
    image = structs.replace(base, python=structs.replace(base.python, torch=known(torch)))
    assert ("cuda-lib-missing", Severity.ERROR) in loud(machine(lacking, base=image))


def shadowed(version: str) -> dict[str, Any]:
    name, winner = "libnvJitLink.so.12", "/usr/local/cuda-12.1/lib64/libnvJitLink.so.12"
    use = LibraryUse(name, Wanted.NEEDED, "x.so", winner, "LD_LIBRARY_PATH", (f"{SITE}/nvidia/nvjitlink/lib/{name}",))
    problem = LibraryProblem(LibraryProblemKind.MISSING_SYMBOL_VERSION, (name,), f"x.so needs version {version}")
    return {"shadowing": (use,), "problems": (problem,)}


def test_a_shadow_that_lacks_what_a_package_needs() -> None:
    base = with_environment(healthy(), LD_LIBRARY_PATH="/usr/local/cuda-12.1/lib64")
    snapshot = machine(extension("my-extension", modules("sm_80"), **shadowed("libnvJitLink.so.12_4")), base=base)
    assert loud(snapshot) == [("ld-library-path-shadow", Severity.ERROR)]
    (finding,) = findings(snapshot, "ld-library-path-shadow")
    assert "/usr/local/cuda-12.1/lib64" in finding.what
    assert "unset LD_LIBRARY_PATH" in finding.fixes[0].commands


def test_a_shadow_is_no_fault_where_torch_imports() -> None:
    assert loud(machine(extension("torch", modules("sm_89"), **shadowed("x")))) == []


def test_a_package_for_a_newer_distribution() -> None:
    what = "x.so needs version GLIBC_2.38 of libc.so.6"
    problem = LibraryProblem(LibraryProblemKind.MISSING_SYMBOL_VERSION, ("libc.so.6",), what)
    snapshot = machine(extension("my-extension", modules("sm_80"), problems=(problem,)))
    assert loud(snapshot) == [("system-library-too-old", Severity.ERROR)]


def test_cudnn_from_two_folders_unless_torch_convolves() -> None:
    what = "the parts of cuDNN come from different folders: /a, /b"
    problem = LibraryProblem(LibraryProblemKind.MIXED_CUDNN, ("/a/libcudnn.so.9",), what)
    snapshot = machine(extension("torch", modules("sm_89"), problems=(problem,)))
    assert loud(snapshot) == [("cudnn-sublibrary-mix", Severity.WARNING)]
    passed = Proof(layer=ProofLayer.TORCH, gpu=0, kernel="conv", target="", outcome=ProofOutcome.PASSED)
    results = evaluate(Case(snapshot, MATRICES, (passed,)), RULES)
    assert [f.name for f in results.findings if f.severity is not Severity.NOTE] == []
    others_pass = structs.replace(passed, kernel="matmul")
    results = evaluate(Case(snapshot, MATRICES, (others_pass, structs.replace(passed, outcome=ProofOutcome.FAILED))), RULES)
    assert [(f.name, f.root) for f in results.findings if f.severity is Severity.ERROR] == [
        ("cudnn-sublibrary-mix", True),
        ("torch-proof-fails", False),
    ]


@pytest.mark.parametrize("name", sorted(GENERATIONS))
def test_healthy_machines_stay_free_of_errors_and_warnings(name: str) -> None:
    own = maybe_archs(GENERATIONS[name])
    packages = (
        extension("torch", modules(own, 400), modules("sm_90a", 4)),
        extension("vllm", modules(own), modules("sm_90a")),
        BinaryPackage("triton", ()),
        BinaryPackage("onnxruntime-gpu", (file("onnxruntime/x.so", modules(own), needed=("libcudart.so.12",)),)),
    )
    assert loud(machine(*packages, base=GENERATIONS[name])) == []


def maybe_archs(snapshot: Snapshot) -> str:
    torch = snapshot.python.torch
    assert isinstance(torch, Known)
    assert isinstance(torch.value.arch_list, Known)
    return " ".join(str(target) for target in torch.value.arch_list.value)
