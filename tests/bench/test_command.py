"""The command: on a stand-in for a GPU, on saved runs, and on what is no saved run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import structs

from cudadoctor.bench.model import BenchReport, Outcome, Phase
from cudadoctor.bench.plot import PlotError, check
from cudadoctor.model.codec import from_json, to_json
from tests.bench.runs import copy, gemm, report, samples
from tests.fakes.build import FAKES, build_fake_libcuda, build_shared_library

NVML = """driver=580.159.04
cuda=13000
count=1
0.name=NVIDIA Fake GPU
0.pci=0000:01:00.0
0.cc=5.0
0.utilization=0
0.processes=0
0.sm_clock=1500
0.sm_clock_max=1500
0.throttle=0x40
0.temperature=93
0.power=99000
0.limit=100000
0.limit_default=100000
"""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("libraries")
    build_fake_libcuda(folder)
    build_shared_library(FAKES / "fake_nvml.c", folder / "libnvidia-ml.so.1")
    return folder


def bench(*arguments: object, **variables: object) -> subprocess.CompletedProcess[str]:
    base = {name: value for name, value in os.environ.items() if "CUDA" not in name}
    env = {**base, **{name: str(value) for name, value in variables.items()}}
    argv = [sys.executable, "-m", "cudadoctor", "bench", *map(str, arguments)]
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)


def saved(folder: Path, run: BenchReport, name: str = "run.json") -> Path:
    path = folder / name
    path.write_bytes(to_json(run))
    return path


def test_it_measures_and_reads_nvml_meanwhile(libraries: Path, tmp_path: Path) -> None:
    (tmp_path / "nvml").write_text(NVML)
    out = tmp_path / "out.json"
    done = bench(
        "gemm", "--quick", "--format", "json", "-o", out, "--python", sys.executable,
        LD_LIBRARY_PATH=libraries, FAKE_NVML=tmp_path / "nvml", XDG_CACHE_HOME=tmp_path / "cache",
        FAKE_CUDA_COMPUTE=1, FAKE_CUDA_CC="5.0", FAKE_CUDA_MEMORY=4_000_000,
    )  # fmt: skip
    run = from_json(out.read_bytes(), BenchReport)
    measured = run.rows[-1]
    assert (measured.kernel, measured.problem) == ("gemm_f16_tiled_sm50", "512^3 f16")
    assert measured.timing is not None
    assert measured.clock_mhz == pytest.approx(1500)
    assert {sample.phase for sample in run.samples} >= {Phase.IDLE, Phase.MEASURING}
    assert run.gpu.sm_clock_max_mhz == 1500
    assert run.verdict is not None
    assert run.verdict.outcome is Outcome.UNDETERMINED
    assert [reason.name for reason in run.verdict.reasons] == ["gpu-throttled"]
    assert (done.returncode, done.stdout) == (4, "")
    assert "torch" in done.stderr


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"FAKE_CUDA_CRASH": "cuLaunchKernel"}, "the process that ran it died of SIGSEGV"),
        ({"FAKE_CUDA_FAIL": "cuMemAlloc_v2=2"}, "cuMemAlloc_v2 failed: "),
        ({"FAKE_CUDA_FAIL": "cuMemGetInfo_v2=999"}, "nothing can be measured on GPU 0: cuMemGetInfo_v2 failed"),
        ({"FAKE_CUDA_COMPUTE": "1", "FAKE_CUDA_COMPUTE_MODE": "3"}, "one process at a time"),
        ({"FAKE_CUDA_CRASH": "cuDevicePrimaryCtxRetain"}, "the process that uses the driver died of SIGSEGV"),
    ],
)
def test_a_driver_that_fails_ends_in_undetermined(libraries: Path, tmp_path: Path, variables: dict[str, str], words: str) -> None:
    small = {"FAKE_CUDA_CC": "5.0", "FAKE_CUDA_MEMORY": 4_000_000, "XDG_CACHE_HOME": tmp_path}
    done = bench("gemm", "--quick", LD_LIBRARY_PATH=libraries, FAKE_NVML=tmp_path / "none", **small, **variables)
    assert done.returncode == 4
    assert words in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_gpu_it_says_so() -> None:
    done = bench("--quick", LD_LIBRARY_PATH="")
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith("cudadoctor: nothing can be measured: ")


@pytest.mark.parametrize(
    ("run", "code", "sentence"),
    [
        (report(), 0, "✓ NVIDIA H200 performs as it should."),
        (
            report(gemm(400.0, library=None), seen=samples(throttle_reasons=("hw_thermal_slowdown",))),
            1,
            "✗ NVIDIA H200 is slower",
        ),
        (report(gemm(), seen=samples(others=1)), 4, "? Busy: "),
    ],
)
def test_a_saved_run_is_judged_anew(tmp_path: Path, run: BenchReport, code: int, sentence: str) -> None:
    done = bench("--judge", saved(tmp_path, run), PYTHONUTF8=1)
    assert done.returncode == code, done.stderr
    assert sentence in done.stdout


def test_the_table_shows_speed_share_ratio_and_limit(tmp_path: Path) -> None:
    done = bench("--judge", saved(tmp_path, report(gemm(), copy())), PYTHONUTF8=1)
    (line,) = [line for line in done.stdout.splitlines() if "gemm_bf16_wgmma_sm90a" in line]
    assert line.split() == [
        "gemm_bf16_wgmma_sm90a",
        "4096^3",
        "bf16",
        "780.0",
        "TFLOPS",
        "1.0%",
        "79%",
        "100%",
        "1.01x",
        "compute",
    ]


def test_hostile_names_are_inert_and_ascii_is_enough(tmp_path: Path) -> None:
    run = report()
    hostile = structs.replace(run, gpu=structs.replace(run.gpu, name="\x1b[31mH200\nGPU ✓ \u202e"))
    done = bench("--judge", saved(tmp_path, hostile), PYTHONIOENCODING="ascii", PYTHONUTF8=0)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split("\n\n")[0].splitlines()) == 1
    assert "\x1b" not in done.stdout
    assert done.stdout.isascii()


def test_against_an_old_run(tmp_path: Path) -> None:
    old = saved(tmp_path, report(gemm(700.0), copy()), "old.json")
    done = bench("--judge", saved(tmp_path, report(gemm(780.0), copy())), "--against", old, PYTHONUTF8=1)
    assert "1 changed, 1 within the noise" in done.stdout
    assert "gemm_bf16_wgmma_sm90a 4096^3 bf16: +11.4%" in done.stdout
    done = bench("--judge", saved(tmp_path, report(gemm(780.0), copy())), "--against", old, "--format", "json")
    found = from_json(done.stdout, BenchReport).against
    assert found is not None
    assert [(change.kernel, change.counts) for change in found] == [
        ("gemm_bf16_wgmma_sm90a", True),
        ("copy_u32_vectors_sm50", False),
    ]


@pytest.mark.parametrize(
    ("option", "data", "words"),
    [
        ("--judge", b"\x00\xff" * 100, "no saved bench"),
        ("--against", b"{}", "no saved bench"),
        (
            "--judge",
            b'{"schema": "cudadoctor.report/1", "tool": {"version": "0"}, "created": "", "seconds": 1, "gpu": {}}',
            "schema",
        ),
        ("--judge", b"[" * 100_000, "no saved bench"),
        ("--judge", to_json(report())[:-40], "no saved bench"),
        ("--against", None, "cannot read"),
    ],
)
def test_what_is_no_saved_run_is_refused(tmp_path: Path, option: str, data: bytes | None, words: str) -> None:
    path = tmp_path / "run.json"
    if data is not None:
        path.write_bytes(data)
    done = bench(option, path)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_plot_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    with pytest.raises(PlotError, match=r"\.pdf"):
        check(tmp_path / "roof.pdf")
    with pytest.raises(PlotError, match="no folder"):
        check(tmp_path / "none" / "roof.svg")
    done = bench("--judge", saved(tmp_path, report()), "--plot", tmp_path / "roof.pdf")
    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.parametrize("suffix", ["svg", "png", "html"])
def test_the_roofline_is_drawn(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib", reason="the extra cudadoctor[plot] is not installed")
    path = tmp_path / f"roof.{suffix}"
    done = bench("--judge", saved(tmp_path, report()), "--plot", path, MPLCONFIGDIR=tmp_path)
    assert done.returncode == 0, done.stderr
    data = path.read_bytes()
    if suffix == "png":
        assert data.startswith(b"\x89PNG")
    else:
        text = data.decode()
        assert text.count("<svg") == 1
        assert text.startswith("<!doctype html>" if suffix == "html" else "<?xml")
        assert "http://" not in text.replace("http://www.w3.org", "").replace("http://purl.org", "").replace(
            "http://creativecommons.org", ""
        )
