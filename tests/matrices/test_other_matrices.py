"""Answers about cuDNN, the ecosystem, errors, variables, sonames and platforms against facts one can look up."""

from __future__ import annotations

import pytest
from packaging.version import Version

from cudadoctor.matrices import DriverPlatform, Matrices, WheelPlatform
from cudadoctor.matrices.cudnn import version_of
from cudadoctor.matrices.listing import MatrixName, as_of, lines, title_of
from cudadoctor.model.snapshot import Platform
from cudadoctor.model.versions import ComputeCapability, CudaVersion, DottedVersion


def version(text: str) -> DottedVersion:
    return DottedVersion.parse(text)


class TestCudnn:
    @pytest.mark.parametrize(
        ("cudnn", "cuda_major", "lowest"),
        [
            ("7.6.5", 10, "3.0"),
            ("8.5.0.96", 11, "3.5"),
            ("8.9.7", 12, "5.0"),
            ("9.10.2.21", 12, "5.0"),
            ("9.11.0", 12, "7.5"),
            ("9.11.0", 11, None),
            ("9.20.0.48", 13, "7.5"),
            ("9.99.0", 13, "7.5"),
            ("10.0.0", 13, None),
        ],
    )
    def test_lowest_capability(self, matrices: Matrices, cudnn: str, cuda_major: int, lowest: str | None) -> None:
        found = matrices.cudnn.min_cc(version(cudnn), cuda_major)
        assert (str(found) if found else None) == lowest

    def test_gpus(self, matrices: Matrices) -> None:
        volta, blackwell = ComputeCapability(7, 0), ComputeCapability(12, 0)
        assert matrices.cudnn.serves(version("9.10.2"), 12, volta) is True
        assert matrices.cudnn.serves(version("9.11.0"), 12, volta) is False
        assert matrices.cudnn.serves(version("9.20.0"), 13, blackwell) is True
        assert matrices.cudnn.serves(version("10.1"), 13, volta) is None
        newest = matrices.cudnn.newest_for(volta, 12)
        assert newest is not None
        assert str(newest.last) == "9.10"

    def test_files(self, matrices: Matrices) -> None:
        assert matrices.cudnn.soname(version("8.9.7")) == "libcudnn.so.8"
        assert matrices.cudnn.soname(version("9.1.0")) == "libcudnn.so.9"
        assert matrices.cudnn.successors("libcudnn_ops_infer.so.8") == ("libcudnn_ops",)
        assert "libcudnn_graph.so.9" in matrices.cudnn.libraries(9)
        assert matrices.cudnn.libraries(12) == ()

    @pytest.mark.parametrize(
        ("package", "of", "soname"),
        [
            ("torch", "2.3.1", "libcudnn.so.8"),
            ("torch", "2.4.0", "libcudnn.so.9"),
            ("torch", "2.15.0", "libcudnn.so.9"),
            ("tensorflow", "2.18.1", "libcudnn.so.9"),
            ("onnxruntime-gpu", "1.18.1", "libcudnn.so.8"),
            ("ctranslate2", "4.8.5", None),
            ("nothing", "1.0", None),
        ],
    )
    def test_who_loads_which(self, matrices: Matrices, package: str, of: str, soname: str | None) -> None:
        assert matrices.cudnn.expected_soname(package, version(of)) == soname

    def test_drivers(self, matrices: Matrices) -> None:
        ada, blackwell = ComputeCapability(8, 9), ComputeCapability(12, 0)
        linux = DriverPlatform.LINUX
        assert str(matrices.cudnn.minimum_driver(version("9.10.2"), 12, ada, linux)) == "525.60.13"
        assert str(matrices.cudnn.minimum_driver(version("9.10.2"), 12, blackwell, linux)) == "570.26"
        assert str(matrices.cudnn.minimum_driver(version("9.20.0"), 13, ada, DriverPlatform.WINDOWS)) == "580.88"
        assert matrices.cudnn.minimum_driver(version("10.0"), 13, ada, linux) is None

    @pytest.mark.parametrize(("number", "text"), [(7605, "7.6.5"), (8907, "8.9.7"), (90100, "9.1.0"), (92801, "9.28.1")])
    def test_version_numbers(self, number: int, text: str) -> None:
        assert str(version_of(number)) == text
        with pytest.raises(ValueError, match="12"):
            version_of(12)

    def test_newest(self, matrices: Matrices) -> None:
        assert matrices.cudnn.is_newer_than_table(version("9.40.0"))
        assert str(matrices.cudnn.newest_known) == "9.28.1.4"


class TestEcosystem:
    def test_torch_pins(self, matrices: Matrices) -> None:
        eco = matrices.ecosystem
        pin = eco.torch_for("vllm", Version("0.11.2"))
        assert pin is not None
        assert pin.contains("2.9.0")
        assert not pin.contains("2.9.1")
        row = eco.release_for_torch("xformers", Version("2.6.0+cu124"))
        assert row is not None
        assert str(row.version) == "0.0.29.post3"
        assert eco.torch_for("vllm", Version("99.0")) is None
        assert eco.torch_for("unheard-of", Version("1.0")) is None

    @pytest.mark.parametrize(
        ("triton", "capability", "can"),
        [
            ("3.1.0", "9.0", True),
            ("3.1.0", "12.0", False),
            ("3.3.1", "12.0", True),
            ("3.5.1", "12.1", False),
            ("3.5.1", "10.3", False),
            ("3.6.0", "10.3", True),
            ("3.6.0", "12.1", True),
            ("3.9.0", "10.7", True),
            ("3.8.0", "10.7", False),
            ("3.4.0", "6.1", False),
            ("3.4.0", "8.9", True),
        ],
    )
    def test_triton_assemblers(self, matrices: Matrices, triton: str, capability: str, can: bool) -> None:
        row = matrices.ecosystem.triton_release(Version(triton))
        assert row is not None
        assert row.can_target(ComputeCapability.parse(capability), matrices.toolkits) is can

    def test_unknown_triton(self, matrices: Matrices) -> None:
        assert matrices.ecosystem.triton_release(Version("9.0.0")) is None

    def test_flash_attention(self, matrices: Matrices) -> None:
        eco = matrices.ecosystem
        two = eco.flash_attention_release("flash-attn", Version("2.8.3"))
        three = eco.flash_attention_release("flash-attn-3", Version("3.0.0b1"))
        assert two is not None
        assert three is not None
        assert not two.serves(ComputeCapability(7, 5))
        assert two.serves(ComputeCapability(12, 0))
        assert three.serves(ComputeCapability(9, 0))
        assert not three.serves(ComputeCapability(10, 0))
        assert eco.flash_attention_release("flash-attn", Version("3.0")) is None

    def test_bitsandbytes(self, matrices: Matrices) -> None:
        eco = matrices.ecosystem
        library = eco.bitsandbytes_library(Version("0.45.5"), CudaVersion.of(12, 8))
        assert library is not None
        assert str(library.targets[0]) == "sm_70"
        assert eco.bitsandbytes_library(Version("0.50.2"), CudaVersion.of(13, 4)) is None
        assert CudaVersion.of(13, 2) in eco.bitsandbytes_cudas(Version("0.50.2"))

    def test_frameworks(self, matrices: Matrices) -> None:
        eco = matrices.ecosystem
        tensorflow = eco.tensorflow_release(Version("2.12.1"))
        assert tensorflow is not None
        assert tensorflow.cuda == CudaVersion.of(11, 8)
        assert eco.tensorflow_release(Version("3.0")) is None
        jax = eco.jax_plugin("jax-cuda13-plugin", Version("0.9.3"))
        assert jax is not None
        assert (str(jax.version), jax.cuda_major) == ("0.9.2", 13)
        assert eco.jax_plugin("jax-cuda13-plugin", Version("1.0")) is None
        onnx = eco.onnxruntime_release(Version("1.19.0"))
        assert onnx is not None
        assert (str(onnx.version), onnx.cuda_major, onnx.cudnn_major) == ("1.19.2", 12, 9)
        assert eco.cupy_major("cupy-cuda12x") == 12
        assert eco.cupy_major("cupy") is None

    def test_binaries_and_notes(self, matrices: Matrices) -> None:
        scan = matrices.ecosystem.binary("onnxruntime-gpu", Version("1.31.1"))
        assert scan is not None
        assert "libcudart.so.13" in scan.needed
        assert matrices.ecosystem.notes_on("llama-cpp-python")


class TestErrors:
    @pytest.mark.parametrize(
        ("code", "name"),
        [
            (2, "CUDA_ERROR_OUT_OF_MEMORY"),
            (35, "cudaErrorInsufficientDriver"),
            (209, "CUDA_ERROR_NO_BINARY_FOR_GPU"),
            (222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"),
            (803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
            (804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"),
        ],
    )
    def test_codes_and_names(self, matrices: Matrices, code: int, name: str) -> None:
        row = matrices.errors.by_code(code)
        assert row is not None
        assert row.name == name
        assert matrices.errors.by_name(name.lower()) == row
        assert row.fixes

    def test_every_name_leads_to_its_code(self, matrices: Matrices) -> None:
        for row in matrices.errors.codes:
            for name in (row.runtime_name, row.driver_name):
                assert name is None or matrices.errors.by_name(name) == row

    def test_texts(self, matrices: Matrices) -> None:
        errors = matrices.errors
        text = (
            "RuntimeError: CUDA error: no kernel image is available for execution on the device\nCUDA kernel errors might be ..."
        )
        assert errors.by_text(text)[0].code == 209
        assert errors.by_text("all is well") == ()
        assert errors.by_code(99_999) is None
        assert errors.by_name("nonsense") is None

    def test_xids(self, matrices: Matrices) -> None:
        row = matrices.errors.xid(79)
        assert row is not None
        assert row.immediate_action == "RESTART_BM"
        assert matrices.errors.action_word("RESTART_BM") is not None
        assert matrices.errors.xid(100_000) is None

    def test_nvml_and_nvidia_smi(self, matrices: Matrices) -> None:
        errors = matrices.errors
        mismatch = errors.smi_message("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 570.86")
        assert mismatch is not None
        assert mismatch.exit_code == 18
        nine = errors.smi_exit(9)
        assert nine is not None
        assert nine.meaning == "driver not loaded"
        nvml = errors.nvml(9)
        assert nvml is not None
        assert nvml.message == "Driver Not Loaded"
        assert errors.smi_message("Mon Nov 30 22:00:00 2026") is None


class TestVariables:
    def test_known_and_unknown(self, matrices: Matrices) -> None:
        env = matrices.env
        row = env.variable("CUDA_VISIBLE_DEVICES")
        assert row is not None
        assert row.mistakes
        assert env.variable("CUDA_INVENTED") is None
        assert env.is_known("NCCL_ALGO")
        assert not env.is_known("CUDA_INVENTED")

    @pytest.mark.parametrize(
        ("name", "meant"),
        [
            ("CUDA_VISIBLE_DEVICE", "CUDA_VISIBLE_DEVICES"),
            ("TORCH_CUDA_ARCH_LISTS", "TORCH_CUDA_ARCH_LIST"),
            ("CUDA_VISIBLE_DEVICES", None),
            ("MY_OWN_VARIABLE", None),
        ],
    )
    def test_misspelt(self, matrices: Matrices, name: str, meant: str | None) -> None:
        found = matrices.env.meant(name)
        assert (found.name if found else None) == meant


class TestSonames:
    @pytest.mark.parametrize(
        ("soname", "majors"),
        [
            ("libcudart.so.11.0", (11,)),
            ("libcudart.so.12", (12,)),
            ("libcudart.so.12.6.77", (12,)),
            ("libcublas.so.13", (13,)),
            ("libcurand.so.10", (11, 12, 13)),
            ("libcusolver.so.11", (11, 12)),
            ("libcufft.so.11", (12,)),
            ("libnvrtc.so.11.2", (11,)),
            ("libm.so.6", ()),
            ("libcudart.so.120", ()),
        ],
    )
    def test_majors(self, matrices: Matrices, soname: str, majors: tuple[int, ...]) -> None:
        assert matrices.sonames.cuda_majors_of(soname) == majors
        assert matrices.sonames.cuda_major_of(soname) == (majors[0] if len(majors) == 1 else None)

    def test_names(self, matrices: Matrices) -> None:
        assert "libcublasLt.so.12" in matrices.sonames.sonames(12)
        assert matrices.sonames.sonames(99) == ()
        assert matrices.sonames.soname("libcufft", 13) == "libcufft.so.12"
        assert matrices.sonames.soname("libnvJitLink", 11) is None
        owner = matrices.sonames.owner("libcuda.so.1")
        assert owner is not None
        assert owner.owner.startswith("driver")
        assert matrices.sonames.owner("libc.so.6") is None


def test_platforms() -> None:
    assert WheelPlatform.of(Platform.WSL, "x86_64") is WheelPlatform.LINUX_X86_64
    assert WheelPlatform.of(Platform.LINUX, "aarch64") is WheelPlatform.LINUX_AARCH64
    assert WheelPlatform.of(Platform.WINDOWS, "AMD64") is WheelPlatform.WINDOWS
    assert WheelPlatform.of(Platform.WINDOWS, "ARM64") is None
    assert WheelPlatform.of(Platform.LINUX, "ppc64le") is None
    assert WheelPlatform.of(Platform.MACOS, "arm64") is None
    assert DriverPlatform.of(Platform.WSL) is DriverPlatform.WINDOWS
    assert DriverPlatform.of(Platform.LINUX) is DriverPlatform.LINUX
    assert DriverPlatform.of(Platform.MACOS) is None


def test_listing_finds_rows_by_words(matrices: Matrices) -> None:
    found = lines(matrices, MatrixName.GPUS, "h200 sxm")
    assert [line.cells[0] for line in found] == [("name", "H200 SXM 141 GB")]
    assert "compute capability 9.0" in found[0].text
    assert lines(matrices, MatrixName.GPUS, "no such thing") == ()
    defaults = dict(lines(matrices, MatrixName.TORCH, "2.15.0 cu132")[0].cells)
    assert defaults["default linux x86 64"] == "cu132"
    for name in MatrixName:
        assert title_of(matrices, name)
        assert as_of(matrices, name).year >= 2026
