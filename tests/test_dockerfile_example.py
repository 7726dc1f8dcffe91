"""deploy/docker/Dockerfile.example is fit for the GPUs that it names, and each of its precautions is needed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "deploy" / "docker" / "Dockerfile.example"
TARGET = ("--gpu", "A100", "--gpu", "H100", "--gpu", "RTX 5090", "--driver", "570")


def findings(text: str, folder: Path, *options: str) -> dict[str, str]:
    """Names and severities of what preflight finds in a Dockerfile."""
    (folder / "Dockerfile").write_text(text, encoding="utf-8")
    argv = [
        sys.executable,
        "-m",
        "cudadoctor",
        "preflight",
        "--dockerfile",
        "Dockerfile",
        "--format",
        "json",
        *(options or TARGET),
    ]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(argv, cwd=folder, capture_output=True, timeout=60, env=env)
    assert done.returncode in (0, 1), done.stderr
    return {found["name"]: found["severity"] for found in json.loads(done.stdout)["findings"]}


def example() -> str:
    return EXAMPLE.read_text(encoding="utf-8")


def test_it_is_fit_for_its_gpus(tmp_path: Path) -> None:
    assert set(findings(example(), tmp_path).values()) <= {"note"}


def test_the_comment_and_the_stage_name_the_same_target() -> None:
    named = re.findall(r'--gpu A100 --gpu H100 --gpu "RTX 5090" --driver 570', example())
    assert len(named) == 2


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("ENV TORCH_CUDA_ARCH_LIST=", "ENV OTHER=", "arch-list-empty-no-gpu"),
        ("8.0;9.0;12.0", "8.0;9.0", "arch-list-stale"),
        ("-devel-", "-runtime-", "nvcc-missing"),
        ("torch==2.9.1 --index-url https://download.pytorch.org/whl/cu128", "torch==2.5.1+cu124", "arch-missing-in-wheel"),
    ],
)
def test_each_precaution_is_needed(old: str, new: str, found: str, tmp_path: Path) -> None:
    assert old in example()
    assert findings(example().replace(old, new), tmp_path)[found] == "error"


def test_an_older_driver_would_not_run_it(tmp_path: Path) -> None:
    assert findings(example(), tmp_path, "--gpu", "A100", "--driver", "470")["driver-too-old"] == "error"
