"""Dockerfiles read without building: what they would install, what is wrong with that, and the line that says so."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cudadoctor.diagnosis import Selection
from cudadoctor.dockerfile.base_images import image_of, read_reference
from cudadoctor.dockerfile.parser import MAX_BYTES, DockerfileError, parse
from cudadoctor.dockerfile.python_installs import named
from cudadoctor.dockerfile.reading import DockerfileSnapshots, read_dockerfile
from cudadoctor.dockerfile.shell import commands
from cudadoctor.dockerfile.substitution import expand, pairs, unquoted
from cudadoctor.matrices import Matrices
from cudadoctor.model.codec import to_json
from cudadoctor.model.fact import Known, Missing, known, maybe
from cudadoctor.model.finding import Finding, Severity
from cudadoctor.model.redact import redact
from cudadoctor.model.report import Report, Verdict
from cudadoctor.model.snapshot import Snapshot, Torch, TorchBuild
from cudadoctor.preflight import assumed, target_of
from cudadoctor.preflight_judgement import judge

MATRICES = Matrices.load()
WHL = "https://download.pytorch.org/whl"


def read(folder: Path, text: str | bytes, files: Mapping[str, str] | None = None, **options: object) -> DockerfileSnapshots:
    """The snapshots of a Dockerfile with this text, in a context with these files."""
    for name, content in (files or {}).items():
        (folder / name).write_text(content, encoding="utf-8")
    path = folder / "Dockerfile"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_dockerfile(path, MATRICES, **options)  # type: ignore[arg-type] # options are passed on as they are


def judged(read_: DockerfileSnapshots, gpus: tuple[str, ...], driver: str | None) -> Report:
    target = target_of(gpus, driver, MATRICES)
    builders = [assumed(stage, target, MATRICES) for stage in read_.builders]
    return judge(assumed(read_.image, target, MATRICES), builders, MATRICES, selection=Selection()).report


def torch_of(snapshot: Snapshot) -> Torch:
    return known(snapshot.python.torch)


def lines_of(finding: Finding) -> set[int]:
    return {item.line for item in finding.evidence if item.line is not None}


@dataclass(frozen=True)
class Row:
    """A Dockerfile, what it is meant for, and every error and warning that is right, each with a line that it points at."""

    label: str
    text: str
    problems: Mapping[str, tuple[Severity, int]]
    gpus: tuple[str, ...] = ("RTX 4090",)
    driver: str | None = "580"
    files: Mapping[str, str] = field(default_factory=dict)
    arguments: Mapping[str, str] = field(default_factory=dict)
    verdict: Verdict | None = None


E, W = Severity.ERROR, Severity.WARNING
FLASH = "RUN pip install flash-attn --no-build-isolation\n"
ROWS = (
    Row(
        "a runtime image with a torch that fits",
        f"FROM nvidia/cuda:12.4.1-cudnn-runtime-ubuntu22.04\nRUN pip install torch==2.5.1 --index-url {WHL}/cu124\n",
        {},
    ),
    Row(
        "a wheel that is older than the GPU",
        f"FROM python:3.11\n\nRUN pip install torch==2.5.1 --index-url {WHL}/cu124\n",
        {"arch-missing-in-wheel": (E, 3)},
        gpus=("RTX 5090",),
    ),
    Row(
        "a wheel that dropped the GPU",
        f"FROM python:3.11-bookworm\nRUN pip install numpy && \\\n    pip install torch==2.9.1 --index-url {WHL}/cu130\n",
        {"arch-missing-in-wheel": (E, 3)},
        gpus=("V100",),
    ),
    Row(
        "one GPU of two is served",
        f"FROM python:3.12\nRUN pip install torch==2.6.0 --index-url {WHL}/cu126\n",
        {"arch-missing-in-wheel": (E, 2)},
        gpus=("RTX 4090", "12.0"),
    ),
    Row(
        "a CUDA major that the driver does not have",
        f"FROM python:3.12\nRUN uv pip install torch==2.9.1 --index-url {WHL}/cu130\n",
        {"driver-too-old": (E, 2)},
        driver="550",
    ),
    Row(
        "minor-version compatibility",
        f"FROM python:3.12\nRUN pip install torch==2.7.1 --index-url {WHL}/cu128\n",
        {},
        driver="550",
    ),
    Row(
        "a CPU build",
        f"FROM python:3.12\nRUN pip install torch --index-url {WHL}/cpu\n",
        {"cpu-only-torch": (E, 2)},
    ),
    Row(
        "the index in an argument of the build",
        "ARG TAG=cpu\nFROM python:3.12\nARG TAG\nRUN pip install torch==2.6.0 --index-url https://download.pytorch.org/whl/$TAG\n",
        {},
        arguments={"TAG": "cu124"},
    ),
    Row(
        "the same with its default",
        "ARG TAG=cpu\nFROM python:3.12\nARG TAG\nRUN pip install torch==2.6.0 --index-url https://download.pytorch.org/whl/$TAG\n",
        {"cpu-only-torch": (E, 4)},
    ),
    Row(
        "the base image in an argument with a default",
        "ARG CUDA=13.0.1\nARG OS=ubuntu22.04\nFROM nvidia/cuda:${CUDA}-devel-${OS:-ubuntu20.04}\nRUN true\n",
        {"container-require-unsatisfied": (E, 3), "ptx-newer-than-driver": (W, 3)},
        driver="550",
    ),
    Row(
        "an image that demands a newer driver than a GeForce may have",
        "FROM nvidia/cuda:12.6.3-base-ubuntu22.04\n",
        {"container-require-unsatisfied": (E, 1)},
        driver="550",
    ),
    Row(
        "the same image for a data centre GPU, whose older branch is listed",
        "FROM nvidia/cuda:12.6.3-base-ubuntu22.04\n",
        {},
        gpus=("A100",),
        driver="550",
    ),
    Row(
        "the check switched off",
        "FROM nvidia/cuda:12.6.3-base-ubuntu22.04\nENV NVIDIA_DISABLE_REQUIRE=1\n",
        {},
        driver="550",
    ),
    Row(
        "a demand of its own",
        'FROM python:3.12\nENV NVIDIA_REQUIRE_DRIVER="driver>=575"\n',
        {"container-require-unsatisfied": (E, 2)},
        driver="570",
    ),
    Row(
        "an extension in a runtime image",
        "FROM pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime\nENV TORCH_CUDA_ARCH_LIST=8.9\nRUN apt-get update\n"
        "RUN pip install git+https://github.com/graphdeco-inria/diff-gaussian-rasterization\n",
        {"nvcc-missing": (E, 4)},
    ),
    Row("one that may come as a wheel", f"FROM pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime\n{FLASH}", {"nvcc-missing": (W, 2)}),
    Row("the same in a devel image", f"FROM pytorch/pytorch:2.5.1-cuda12.4-cudnn9-devel\n{FLASH}", {}),
    Row(
        "an extension without a list of architectures",
        "FROM pytorch/pytorch:2.5.1-cuda12.4-cudnn9-devel\nRUN pip install \\\n  git+https://github.com/x/simple-knn.git\n",
        {"arch-list-empty-no-gpu": (E, 2)},
    ),
    Row(
        "the list in front of the command",
        "FROM pytorch/pytorch:2.5.1-cuda12.4-cudnn9-devel\n"
        'RUN TORCH_CUDA_ARCH_LIST="8.6;8.9" pip install git+https://github.com/x/simple-knn.git\n',
        {},
    ),
    Row(
        "a list that leaves the GPU out",
        "FROM pytorch/pytorch:2.5.1-cuda12.4-cudnn9-devel\nENV TORCH_CUDA_ARCH_LIST='7.0;8.0'\n"
        "RUN pip install git+https://github.com/x/simple-knn.git\n",
        {"arch-list-stale": (E, 2)},
        gpus=("H100",),
    ),
    Row(
        "a toolkit that cannot build for the GPU",
        f"FROM nvidia/cuda:12.4.1-devel-ubuntu22.04\nRUN pip install torch==2.7.1 --index-url {WHL}/cu128\n"
        "RUN FORCE_CUDA=1 TORCH_CUDA_ARCH_LIST=12.0 python setup.py install\n",
        {"toolkit-too-old": (E, 1), "nvcc-arch-unsupported": (E, 3)},
        gpus=("RTX 5090",),
    ),
    Row(
        "a toolkit that is too old where nothing is compiled",
        f"FROM nvidia/cuda:12.4.1-devel-ubuntu22.04\nRUN pip install torch==2.7.1 --index-url {WHL}/cu128\n",
        {"toolkit-too-old": (W, 1)},
        gpus=("RTX 5090",),
    ),
    Row(
        "an extension by an nvcc of another major",
        f"FROM nvidia/cuda:13.0.1-devel-ubuntu24.04\nRUN pip install torch==2.7.1 --index-url {WHL}/cu128\n"
        "ENV TORCH_CUDA_ARCH_LIST=8.9\nRUN pip install git+https://github.com/x/simple-knn.git\n",
        {"nvcc-torch-mismatch": (E, 4)},
    ),
    Row(
        "a compiler that is too new for the toolkit",
        "FROM python:3.12-trixie\nRUN apt-get install -y cuda-toolkit-12-4\nRUN cmake -DGGML_CUDA=ON .\n",
        {"host-compiler-too-new": (E, 1), "glibc-too-new": (E, 1)},
    ),
    Row(
        "FORCE_CUDA left out",
        "FROM pytorch/pytorch:2.5.1-cuda12.4-cudnn9-devel\n"
        "RUN pip install 'git+https://github.com/facebookresearch/detectron2.git'\n",
        {"extension-built-without-cuda": (W, 2)},
    ),
    Row(
        "stubs on the loader's path",
        "FROM nvidia/cuda:12.4.1-devel-ubuntu22.04\nENV A=1 \\\n"
        "    LD_LIBRARY_PATH=/usr/local/cuda/lib64/stubs:$LD_LIBRARY_PATH\n",
        {"stub-on-library-path": (W, 3)},
    ),
    Row(
        "a stub that is called libcuda.so.1",
        "FROM nvidia/cuda:12.4.1-devel-ubuntu22.04\n"
        "RUN ln -s /usr/local/cuda/lib64/stubs/libcuda.so /usr/local/cuda/lib64/stubs/libcuda.so.1\n"
        "ENV LD_LIBRARY_PATH=/usr/local/cuda/lib64/stubs\n",
        {"stub-libcuda": (E, 1)},
    ),
    Row(
        "ldconfig over the stubs",
        "FROM nvidia/cuda:12.4.1-devel-ubuntu22.04\n"
        "RUN echo /usr/local/cuda/lib64/stubs > /etc/ld.so.conf.d/stubs.conf && ldconfig\n",
        {"stub-libcuda": (E, 1)},
    ),
    Row(
        "stubs for the linker only",
        "FROM nvidia/cuda:12.4.1-devel-ubuntu22.04\nENV LIBRARY_PATH=/usr/local/cuda/lib64/stubs\n",
        {},
    ),
    Row(
        "cuda-compat for a GeForce",
        "FROM nvidia/cuda:12.8.1-runtime-ubuntu22.04\nENV NVIDIA_DISABLE_REQUIRE=true\n"
        "ENV LD_LIBRARY_PATH=/usr/local/cuda/compat\n",
        {"cuda-compat-in-image": (E, 3)},
        driver="535",
    ),
    Row(
        "cuda-compat for a data centre GPU",
        "FROM nvidia/cuda:12.8.1-runtime-ubuntu22.04\nENV LD_LIBRARY_PATH=/usr/local/cuda/compat\n",
        {},
        gpus=("A100",),
        driver="535",
    ),
    Row(
        "cuda-compat in front of a newer driver",
        "FROM nvidia/cuda:12.4.1-runtime-ubuntu22.04\nENV LD_LIBRARY_PATH=/usr/local/cuda-12.4/compat:$LD_LIBRARY_PATH\n",
        {"cuda-compat-in-image": (E, 2)},
        gpus=("A100",),
    ),
    Row(
        "a driver in the image",
        "FROM ubuntu:22.04\nRUN apt-get update && apt-get install -y --no-install-recommends \\\n"
        "    curl \\\n    nvidia-driver-550\n",
        {"driver-in-image": (W, 2)},
    ),
    Row(
        "compute left out of the capabilities",
        f"FROM python:3.12\nENV NVIDIA_DRIVER_CAPABILITIES=utility\nRUN pip install torch==2.6.0 --index-url {WHL}/cu124\n",
        {"driver-capabilities-missing": (E, 2)},
    ),
    Row(
        "a builder that lacks the compiler, and an image that is fine",
        "FROM pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime AS build\nENV TORCH_CUDA_ARCH_LIST=8.9\n"
        "RUN pip install git+https://github.com/x/simple-knn.git\n"
        "FROM pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime\nCOPY --from=build /opt/conda /opt/conda\n",
        {"nvcc-missing": (E, 3)},
    ),
    Row(
        "a builder that nothing is taken from",
        "FROM pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime AS lint\nRUN pip install git+https://github.com/x/simple-knn.git\n"
        "FROM pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime\n",
        {},
    ),
    Row(
        "torch in an environment that is copied",
        "FROM python:3.11 AS build\nRUN python -m venv /opt/venv\n"
        f"RUN /opt/venv/bin/pip install torch==2.5.1 --index-url {WHL}/cu124\n"
        "FROM python:3.11-slim\nCOPY --from=build /opt/venv /opt/venv\n",
        {"arch-missing-in-wheel": (E, 5)},
        gpus=("RTX 5090",),
    ),
    Row(
        "a requirements file of the context",
        "FROM python:3.11\nCOPY requirements.txt .\nRUN pip install -r requirements.txt\n",
        {"arch-missing-in-wheel": (E, 3)},
        gpus=("RTX 5090",),
        files={"requirements.txt": f"--index-url {WHL}/cu121\nnumpy>=1.26  # fine\ntorch==2.4.1 ; python_version >= '3.9'\n"},
    ),
    Row(
        "conda",
        "FROM continuumio/miniconda3:24.1.2-0\nRUN conda install -y pytorch==2.1.0 pytorch-cuda=12.1 -c pytorch -c nvidia\n",
        {"arch-missing-in-wheel": (E, 2)},
        gpus=("RTX 5090",),
    ),
    Row(
        "NVIDIA's container with a driver that is too old for it",
        "FROM nvcr.io/nvidia/pytorch:25.10-py3\n",
        {"container-require-unsatisfied": (E, 1), "driver-too-old": (E, 1), "ptx-newer-than-driver": (W, 1)},
        driver="550",
    ),
    Row(
        "a here-document",
        "FROM python:3.11\nRUN <<EOF\nset -e\n# comment\n"
        f"pip install \\\n  torch==2.5.1 --index-url {WHL}/cu124\nEOF\nCMD python\n",
        {"arch-missing-in-wheel": (E, 5)},
        gpus=("RTX 5090",),
    ),
    Row(
        "images in arguments made of arguments, a builder with CMake, and a runtime",
        "ARG OS=24.04\nARG CUDA=12.8.1\nARG DEV=nvidia/cuda:${CUDA}-devel-ubuntu${OS}\n"
        "ARG RUN=nvidia/cuda:${CUDA}-runtime-ubuntu${OS}\nFROM ${DEV} AS build\nRUN apt-get install -y gcc-14 g++-14\n"
        "RUN if true; then export A=1; fi && cmake -B build -DGGML_CUDA=ON . && cmake --build build\n"
        "FROM ${RUN}\nCOPY --from=build /app/lib /app\n",
        {},
    ),
    Row(
        "FORCE_CUDA and a list in ENV, a project that is there as a folder",
        "FROM nvidia/cuda:12.4.1-runtime-ubuntu22.04\nENV FORCE_CUDA=1\nARG TORCH_CUDA_ARCH_LIST=8.9\n"
        'ENV TORCH_CUDA_ARCH_LIST="${TORCH_CUDA_ARCH_LIST}"\nRUN pip install --user -e detectron2_repo\n',
        {"nvcc-missing": (E, 5)},
    ),
    Row(
        "cuda-compat in a cache that the container runtime makes anew",
        "FROM nvidia/cuda:12.4.1-base-ubuntu22.04\nRUN ldconfig /usr/local/cuda-12.4/compat/ && ldconfig /x/stubs\n",
        {},
    ),
    Row(
        "an image that nobody knows",
        "FROM registry.example.com/team/base:7\nRUN pip install transformers\n",
        {},
        verdict=Verdict.UNDETERMINED,
    ),
    Row("an argument without a value", "ARG BASE\nFROM ${BASE}\n", {}, verdict=Verdict.UNDETERMINED),
    Row(
        "a requirements file that is not there",
        "FROM python:3.11\nRUN pip install -r requirements.txt\n",
        {},
        verdict=Verdict.UNDETERMINED,
    ),
    Row("an image without CUDA", "FROM python:3.12-slim\nRUN pip install flask\n", {}, verdict=Verdict.HEALTHY),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.label)
def test_a_dockerfile_is_judged_as_its_image_would_be(tmp_path: Path, row: Row) -> None:
    report = judged(read(tmp_path, row.text, row.files, build_arguments=row.arguments), row.gpus, row.driver)
    serious = [finding for finding in report.findings if finding.severity is not Severity.NOTE]
    assert {finding.name: finding.severity for finding in serious} == {name: each[0] for name, each in row.problems.items()}
    for finding in serious:
        assert row.problems[finding.name][1] in lines_of(finding), finding.evidence
    if row.verdict is not None:
        assert report.verdict is row.verdict


def test_fixes_are_written_as_instructions(tmp_path: Path) -> None:
    text = f"FROM python:3.11\nRUN pip install torch==2.5.1 --index-url {WHL}/cu124\n"
    report = judged(read(tmp_path, text), ("RTX 5090",), "580")
    command = report.findings[0].fixes[0].commands[0]
    assert command.startswith("RUN python3 -m pip install --upgrade torch==")
    assert report.findings[0].fixes[0].rechecked
    build = "FROM pytorch/pytorch:2.5.1-cuda12.4-cudnn9-devel\nRUN pip install git+https://github.com/x/simple-knn\n"
    report = judged(read(tmp_path, build), ("RTX 4090",), "580")
    assert report.findings[0].fixes[0].commands == ("ENV TORCH_CUDA_ARCH_LIST=8.9",)


# Whether it can be read at all


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "no FROM"),
        (b"# nothing\n\n", "no FROM"),
        (b"RUN true\n", "no FROM"),
        (b"FROM a\nINSTALL torch\n", "line 2: 'INSTALL' is no instruction"),
        (b"\x7fELF\0\0\0", "not a text file"),
        (b"FROM a\nRUN <<EOF\npip install torch\n", "line 2: the here-document EOF has no end"),
        (b"FROM a\n" + b"#" * (MAX_BYTES + 1), "larger than"),
        (b"FROM a\n" * 30_000, "more than"),
        (b"FROM a\n" * 300, "too many stages"),
        (b"FROM\n", "names no image"),
        (b"\xff\xfe\x00F\x00R", "not a text file"),
    ],
    ids=lambda value: value[:20].decode("latin-1") if isinstance(value, bytes) else "",
)
def test_what_is_no_dockerfile_is_refused(tmp_path: Path, data: bytes, reason: str) -> None:
    with pytest.raises(DockerfileError, match=reason):
        read(tmp_path, data)


def test_a_folder_and_an_absent_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DockerfileError, match="not a regular file"):
        read_dockerfile(tmp_path, MATRICES)
    with pytest.raises(DockerfileError, match="No such file"):
        read_dockerfile(tmp_path / "absent", MATRICES)


def test_a_continuation_without_an_end_is_taken_as_ended(tmp_path: Path) -> None:
    image = read(tmp_path, f"FROM python:3.11\nRUN pip install torch==2.5.1 --index-url {WHL}/cu124 \\\n").image
    assert known(torch_of(image).torch_version) == "2.5.1+cu124"


HOSTILE = {
    "variables that contain each other": "FROM a\n" + "".join(f'ENV V{n}="$V{n - 1}$V{n - 1}$V{n - 1}"\n' for n in range(1, 200)),
    "defaults within defaults": "FROM a\nENV X=" + "${A:-" * 500 + "x" + "}" * 500 + "\n",
    "one word of 900 kB": "FROM a\nRUN " + "x" * 900_000 + "\n",
    "quotes without an end": "FROM a\nRUN " + "'\"" * 100_000 + "\n",
    "20,000 continued lines": "FROM a\nRUN true \\\n" + " && true \\\n" * 19_000,
    "brackets": "FROM a\nRUN " + "$(" * 200_000 + "\n",
    "JSON of depth": "FROM a\nRUN " + "[" * 200_000 + "\n",
    "requirements": "FROM python:3.11\nRUN pip install " + " ".join(f"p{n}=={n}" for n in range(50_000)) + "\n",
    "an ENV of 200 kB": "FROM a\nENV " + " ".join(f"N{n}='{n}$N{n - 1}'" for n in range(15_000)) + "\n",
    "copies": "FROM a AS b\n" + "FROM b\nCOPY --from=b / /\n" * 90,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_read_in_bounded_time(tmp_path: Path, name: str) -> None:
    started = time.monotonic()
    report = judged(read(tmp_path, HOSTILE[name]), ("RTX 4090",), "580")
    assert report.findings == () or all(finding.code for finding in report.findings)
    assert time.monotonic() - started < 60  # quadratic work on a megabyte takes minutes


def test_requirements_outside_of_the_context_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("torch==1.0.0+cu92\n")
    context = tmp_path / "context"
    context.mkdir()
    (context / "requirements.txt").symlink_to("../secret.txt")
    for path in ("../secret.txt", str(tmp_path / "secret.txt"), "requirements.txt"):
        image = read(context, f"FROM python:3.11\nRUN pip install -r {path}\n").image
        assert isinstance(image.python.torch, Missing), path


def test_requirements_that_include_themselves_end(tmp_path: Path) -> None:
    files = {"a.txt": "-r b.txt\n", "b.txt": "-r a.txt\ntorch==2.5.1+cu124\n"}
    image = read(tmp_path, "FROM python:3.11\nRUN pip install -r a.txt\n", files).image
    assert known(torch_of(image).torch_version) == "2.5.1+cu124"


def test_a_stage_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DockerfileError, match="no stage called 'prod'; its stages: dev"):
        read(tmp_path, "FROM python:3.11 AS dev\n", target="prod")


def test_the_stage_that_is_asked_for_is_judged(tmp_path: Path) -> None:
    text = f"FROM python:3.11 AS one\nRUN pip install torch=={{}} --index-url {WHL}/cu124\nFROM python:3.12 AS two\n"
    image = read(tmp_path, text.format("2.5.1"), target="one").image
    assert known(torch_of(image).torch_version) == "2.5.1+cu124"
    assert isinstance(read(tmp_path, text.format("2.5.1")).image.python.torch, Missing)


# The parts


def test_comments_and_empty_lines_within_a_continuation_are_left_out() -> None:
    (_, run) = parse(b"FROM a\nRUN one \\\n# a comment\n\n  && two\n")
    assert [(command.line, command.words) for command in commands(run, lambda _: None)] == [(2, ("one",)), (5, ("two",))]


def test_the_escape_directive_is_followed() -> None:
    (_, run) = parse(b"# escape=`\nFROM a\nRUN one `\n  two\n")
    assert run.text == "one two"


def test_flags_are_taken_off() -> None:
    (_, run) = parse(b"FROM a\nRUN --mount=type=cache,target=/root/.cache --network=none \\\n pip install torch\n")
    assert run.flag("network") == "none"
    assert [command.program for command in commands(run, lambda _: None)] == ["pip"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$A-${A}", "one-one"),
        ("${B:-two}", "two"),
        ("${E:-two}", "two"),
        ("${E-two}", ""),
        ("${A:+set}${B:+set}", "set"),
        ("${B:-${A}x}", "onex"),
        (r"\$A", "$A"),
        ("'$A'", "'$A'"),
        ('"$A"', '"one"'),
        ("$", "$"),
        ("${", "${"),
        ("${B}", ""),
    ],
)
def test_variables_are_replaced_as_the_reference_says(text: str, expected: str) -> None:
    assert expand(text, {"A": "one", "E": ""}.get).text == expected


def test_both_forms_of_env() -> None:
    assert list(pairs('A="x y" B=z')) == [("A", '"x y"'), ("B", "z")]
    assert list(pairs("A the rest = of it")) == [("A", "the rest = of it")]
    assert unquoted('"x y"') == "x y"
    assert unquoted(r"a\ b") == "a b"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a && b; c | d || e && f", [("a",), ("b",), ("c",), ("d",), ("f",)]),
        ("x=$(echo 12.4.1 | cut -d. -f1,2) y$(echo 12.4.1 | cut -d'.' -f 1)", [("y12",)]),
        ('echo "$(a && b; c)" d', [("echo", "$(a && b; c)", "d")]),
        ("X=1 pip install 'a b' \"c\"", [("pip", "install", "a b", "c")]),
        ('["pip", "install", "torch"]', [("pip", "install", "torch")]),
        ('["/bin/bash", "-c", "a && b"]', [("a",), ("b",)]),
        ("if true; then pip install x; fi", [("if", "true"), ("pip", "install", "x"), ("fi",)]),
        ("(cd /a && make)", [("cd", "/a"), ("make",)]),
        ("pip install torch > /dev/null 2>&1", [("pip", "install", "torch")]),
    ],
)
def test_shell_text_is_taken_apart(text: str, expected: list[tuple[str, ...]]) -> None:
    (_, run) = parse(f"FROM a\nRUN {text}\n".encode())
    found = [command.words for command in commands(run, lambda _: None)]
    assert [words for words in found if words != ("&1",) and words != ("1",)] == expected


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("python", ("python", "latest")),
        ("docker.io/library/python:3.12", ("python", "3.12")),
        ("host:5000/nvidia/cuda:12.4.1-base", ("host:5000/nvidia/cuda", "12.4.1-base")),
        ("python@sha256:00", ("python", "")),
        ("a b", ("", "")),
    ],
)
def test_references_are_taken_apart(reference: str, expected: tuple[str, str]) -> None:
    assert read_reference(reference) == expected


@pytest.mark.parametrize(
    ("reference", "toolkit", "torch", "is_known"),
    [
        ("nvidia/cuda:12.4.1-devel-ubuntu22.04", "12.4", None, True),
        ("nvidia/cuda:11.8.0-cudnn8-devel-ubuntu20.04", "11.8", None, True),
        ("mirror.example.com/nvidia/cuda:12.4.1-cudnn-runtime-ubi8", None, None, True),
        ("nvidia/cuda:12.4.1-base", None, None, True),
        ("nvidia/cuda:latest", None, None, False),
        ("pytorch/pytorch:2.5.1-cuda12.4-cudnn9-devel", "12.4", "2.5.1", True),
        ("pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime", None, "2.5.1", True),
        ("pytorch/pytorch:latest", None, None, False),
        ("nvcr.io/nvidia/pytorch:24.05-py3", "12.4", "2.4.0a0", True),
        ("nvcr.io/nvidia/pytorch:99.01-py3", None, None, False),
        ("python:3.12-slim-bookworm", None, None, True),
        ("ubuntu:24.04", None, None, True),
        ("debian:bookworm-slim", None, None, True),
        ("scratch", None, None, True),
        ("ghcr.io/astral-sh/uv:python3.12-bookworm-slim", None, None, True),
        ("team/app:1", None, None, False),
    ],
)
def test_known_images(reference: str, toolkit: str | None, torch: str | None, is_known: bool) -> None:
    image = image_of(reference, 1, MATRICES)
    kit = image.toolkit()
    assert (str(kit.value.version) if kit is not None else None) == toolkit
    assert (image.torch.value.version if image.torch is not None else None) == torch
    assert image.known_contents is is_known


CHOICE = "VERSION='torch==2.6.0.*' || VERSION='torch'; pip install -U $VERSION --extra-index-url "
CUT = 'conda install -c pytorch "pytorch=2.1.1" "pytorch-cuda=$(echo 12.1.0 | cut -d\'.\' -f 1-2)"'


@pytest.mark.parametrize(
    ("command", "version", "build"),
    [
        (f"[ -n x ] && {CHOICE} {WHL}/cu124", "2.6.0+cu124", TorchBuild.CUDA),
        (f"[ -n x ] && {CHOICE} {WHL}/cu121", "2.6.0", TorchBuild.CUDA),
        (CUT, "2.1.1", TorchBuild.CUDA),
        (f"case $X in a) exit 1 ;; *) {CUT} ;; esac", "2.1.1", TorchBuild.CUDA),
        ("pip install torch==1.10 -f https://download.pytorch.org/whl/cu111/torch_stable.html", "1.10+cu111", TorchBuild.CUDA),
        ("pip install torch==2.5.1+cu121 -f x", "2.5.1+cu121", TorchBuild.CUDA),
        (f"pip3 install --extra-index-url {WHL}/cu118 torch==2.4.0", "2.4.0+cu118", TorchBuild.CUDA),
        ("python3 -m pip install torch==2.6.0", "2.6.0", TorchBuild.CUDA),
        ("uv pip install --torch-backend=cu126 torch==2.7.0", "2.7.0+cu126", TorchBuild.CUDA),
        (f"pip install torch==2.5.1 --index-url {WHL}/rocm6.2", "2.5.1+rocm6.2", TorchBuild.ROCM),
        (f"pip install '{WHL}/cu124/torch-2.5.1%2Bcu124-cp311-cp311-linux_x86_64.whl'", "2.5.1+cu124", TorchBuild.CUDA),
        (f"pip install 'torch>=2.4,<2.6' --index-url {WHL}/cu124", "2.5.1+cu124", TorchBuild.CUDA),
        ("conda install pytorch=2.4.1 cpuonly -c pytorch", "2.4.1", TorchBuild.CPU),
    ],
)
def test_which_torch_a_command_installs(tmp_path: Path, command: str, version: str, build: TorchBuild) -> None:
    torch = torch_of(read(tmp_path, f"FROM python:3.11\nRUN {command}\n").image)
    assert known(torch.torch_version) == version
    assert known(torch.build) is build


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("flash-attn==2.7.4", ("flash-attn", "==2.7.4")),
        ("Flash_Attn[x]>=2,<3", ("flash-attn", "<3,>=2")),
        ("git+https://github.com/x/simple-knn.git@main#subdirectory=a", ("simple-knn", "")),
        ("git+https://token@github.com/x/simple-knn", ("simple-knn", "")),
        ("git+ssh://git@github.com/x/apex.git", ("apex", "")),
        ("git+https://github.com/NVlabs/tiny-cuda-nn/#subdirectory=bindings/torch", ("tiny-cuda-nn", "")),
        ("git+https://github.com/x/y#egg=detectron2", ("detectron2", "")),
        ("https://host/a/flash_attn-2.7.4%2Bcu12-cp311-cp311-linux_x86_64.whl", ("flash-attn", "==2.7.4+cu12")),
        ("apex @ git+https://github.com/NVIDIA/apex", ("apex", "")),
        ("{bad}", ("", "")),
    ],
)
def test_packages_are_named(text: str, expected: tuple[str, str]) -> None:
    assert named(text) == expected


def test_secrets_of_a_build_do_not_reach_the_report(tmp_path: Path) -> None:
    text = (
        "FROM pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime\nENV NVIDIA_API_KEY=nvapi-of-bob\n"
        "RUN pip install --index-url https://bob:word-of-bob@pypi.example.com/simple git+https://ghp_0123456789abcdefghij0123456789abcdef@"
        "github.com/x/simple-knn\n"
    )
    report = judged(read(tmp_path, text), ("RTX 4090",), "580")
    assert {"nvcc-missing", "arch-list-empty-no-gpu"} <= {finding.name for finding in report.findings}
    shown = to_json(redact(report)).decode()
    assert not [secret for secret in ("nvapi-of-bob", "word-of-bob", "ghp_0123456789") if secret in shown]


def test_a_plain_install_on_aarch64_is_what_the_index_has_there(tmp_path: Path) -> None:
    text = "FROM --platform=linux/arm64 python:3.11\nRUN pip install torch==2.6.0\n"
    image = read(tmp_path, text).image
    assert known(image.host.architecture) == "aarch64"
    assert known(torch_of(image).build) is TorchBuild.CPU


@pytest.mark.parametrize("command", ["pip install vllm", "pip install dist/*.whl", "pip install .", "uv sync", "poetry install"])
def test_torch_that_comes_with_something_else_is_unknown(tmp_path: Path, command: str) -> None:
    image = read(tmp_path, f"FROM python:3.11\nRUN {command}\n").image
    assert isinstance(image.python.torch, Missing)
    assert command.split()[-1] in image.python.torch.detail


def test_facts_name_file_and_line(tmp_path: Path) -> None:
    image = read(
        tmp_path, f"FROM nvidia/cuda:12.4.1-devel-ubuntu22.04\n\nRUN pip install torch==2.5.1 --index-url {WHL}/cu124\n"
    ).image
    kits = image.toolkits
    assert isinstance(kits, Known) and (kits.source, kits.line) == ("Dockerfile", 1)
    version = torch_of(image).torch_version
    assert isinstance(version, Known) and (version.source, version.line) == ("Dockerfile", 3)
    assert maybe(image.host.os_id) == "ubuntu"
