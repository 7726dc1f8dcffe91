"""Values that try to break out of a report."""

from __future__ import annotations

from msgspec import structs

from cudadoctor.model.fact import Known, Missing, MissingReason
from cudadoctor.model.finding import Evidence, Finding, Fix, Severity, UnknownRule
from cudadoctor.model.proof import ApiError, Proof, ProofLayer, ProofOutcome
from cudadoctor.model.report import Report, Tool, Verdict
from cudadoctor.model.snapshot import Gpu, Host, ProbeRun, PythonEnvironment, Snapshot, Toolkit

HOSTILE = {
    "rich markup": "[bold red]x[/bold red] [link=https://evil.example]y[/link] [/]",
    "ansi": "\x1b[31mred\x1b[0m \x1b]8;;https://evil.example\x07link\x1b]8;;\x07 \x9b31m",
    "newlines": "one\n✓ all is well\r\nthree\x0bfour\u2028five",
    "direction override": "abc\u202egnp.exe\u202c \u2066x\u2069",
    "zero width": "in\u200bvis\u200dible\ufeff",
    "backspace and bell": "error\x08\x08\x08\x08\x08 fine\x07",
    "html": "<script>alert(1)</script><img src=x onerror=alert(1)></details></summary><!-- ",
    "markdown": "# head\n- item `code` **bold** [a](javascript:alert(1)) ![i](https://evil.example/x.png) | cell | ~~s~~",
    "backticks": "``` ```` `` ` ~~~",
    "mentions": "@octocat #1 GH-2 owner/repo#3 https://evil.example www.evil.example mail@evil.example",
    "none-like": "None",
    "empty": "",
    "long": "x" * 100_000,
    "long words": "word " * 20_000,
    "wide": "\u6f22\u5b57" * 40,
    "surrogate": "\udcff path",
    "emoji": ":smile: \U0001f600",
}


def hostile_report(text: str) -> Report:
    """A report in which every free text is `text`."""
    finding = Finding(
        code="CD999",
        name=text,
        severity=Severity.ERROR,
        tags=(text,),
        subject=text,
        what=text,
        why=text,
        explains=("CD998",),
        evidence=(Evidence(fact=text, value=text, source=text, line=1),),
        fixes=(Fix(title=text, commands=(text, f"echo {text}"), verify=(text,)),),
        references=(text,),
    )
    consequence = structs.replace(finding, code="CD998", root=False, explains=("CD999",))
    note = structs.replace(finding, code="CD997", severity=Severity.NOTE, explains=())
    error = ApiError(1, text, text)
    kernel = "gemm " + text
    known = Known(text, text)
    failed = Missing(MissingReason.FAILED, text, text)
    return Report(
        tool=Tool(version=text),
        created="2026-11-30T12:00:00Z",
        node=text,
        verdict=Verdict.PROBLEMS,
        summary=text,
        findings=(finding, note, consequence),
        unknown=(UnknownRule("CD996", text, text),),
        proofs=(
            Proof(ProofLayer.NVRTC, 0, kernel, text, ProofOutcome.FAILED, error, text),
            Proof(ProofLayer.NVCC, 0, text, text, ProofOutcome.UNKNOWN, because=text),
        ),
        snapshot=Snapshot(
            host=Host(os_name=known, architecture=known),
            gpus=Known((Gpu(index=0, name=known, compute_capability=failed, error=text),), text),
            toolkits=Known((Toolkit(root=text, nvcc=known, found_by=(text,)), Toolkit(root=text)), text),
            python=PythonEnvironment(executable=known, chosen_because=text, torch=Missing(MissingReason.CRASHED, text, text)),
            environment=Known({text: text}, text),
            probe_runs=(ProbeRun(probe=text, seconds=1.0, outcome=text, detail=text),),
        ),
        seconds=1.0,
    )
