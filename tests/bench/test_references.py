"""The parent's side of the torch child, against programs that answer as it does, and as it does not."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from cudadoctor.bench.references import TorchReferences

ANSWERING = """#!{python}
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    {special}
    answers = {{"load": {{"torch": "2.11.0", "cuda": "13.0"}}, "burst": {{"ms": [["slow", [2.0, 2.1]], ["fast", [1.0, 1.2]]]}}}}
    print(json.dumps(answers.get(asked["do"], {{}})), flush=True)
"""


def torch_at(folder: Path, special: str = "") -> TorchReferences:
    program = folder / "python"
    program.write_text(ANSWERING.format(python=sys.executable, special=special))
    program.chmod(0o755)
    return TorchReferences(str(program), os.environ, 0)


def test_the_fastest_call_is_the_reference(tmp_path: Path) -> None:
    torch = torch_at(tmp_path)
    torch.load()
    torch.prepare("x", {"op": "gemm"})
    for _ in range(2):
        torch.burst("x", 2, 1 << 20)
    reference = torch.finish("x")
    torch.close()
    assert torch.version == "2.11.0"
    assert reference is not None
    assert (reference.name, reference.timing.launches) == ("fast", 4)
    assert reference.timing.median == pytest.approx(1.1)


@pytest.mark.parametrize(
    ("special", "because"),
    [
        ("sys.exit(3)", "ended with exit code 3"),
        ("import os; os.kill(os.getpid(), 11)", "died of SIGSEGV"),
        ("print('Traceback'); sys.stdout.flush()", "answered with garbage"),
        ('print(json.dumps({"error": "No module named torch"}), flush=True); continue', "No module named torch"),
    ],
)
def test_without_torch_there_is_no_reference_and_it_is_said_why(tmp_path: Path, special: str, because: str) -> None:
    torch = torch_at(tmp_path, special)
    torch.load()
    torch.prepare("x", {"op": "gemm"})
    torch.burst("x", 2, 1 << 20)
    assert torch.finish("x") is None
    assert because in torch.because


def test_an_interpreter_that_is_not_there(tmp_path: Path) -> None:
    torch = TorchReferences(str(tmp_path / "none"), os.environ, 0)
    torch.load()
    assert "could not be started" in torch.because
    assert torch.finish("x") is None
