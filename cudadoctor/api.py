"""The doctor as a library: `probe`, `prove`, `judge`, `check` and `triage`, which `import cudadoctor` offers by the same names.

Nothing here prints, exits or changes the machine. What is found wrong is in the report, never an exception.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

from cudadoctor.diagnosis import Selection, diagnose
from cudadoctor.matrices import Matrices
from cudadoctor.model.proof import Proof
from cudadoctor.model.redact import Identity, redact
from cudadoctor.model.report import Report
from cudadoctor.model.snapshot import Snapshot
from cudadoctor.plugins import ask_plugins

if TYPE_CHECKING:
    from cudadoctor.system import System

Kernels: TypeAlias = Literal["nothing", "quick", "all"]
"""Which kernels are run: none, those of `check`, or those of `check --full`."""

DEFAULT_TIMEOUT_S = 30.0


def probe(*, python: str | None = None, timeout: float = DEFAULT_TIMEOUT_S, system: System | None = None) -> Snapshot:
    """The facts of this machine, judged by nobody; a source that did not answer within `timeout` seconds is a Missing fact.

    `python` is the interpreter to examine (default: as `check` chooses it); `system` is what is read, this machine by default.
    Names, paths and UUIDs are as they are: `redact(report)` and the functions below hide them.
    """
    return _examined(python, "nothing", timeout, system)[0]


def prove(
    *, python: str | None = None, kernels: Kernels = "quick", timeout: float = DEFAULT_TIMEOUT_S, system: System | None = None
) -> tuple[Proof, ...]:
    """What running kernels showed, layer by layer: compile times in seconds, run times in milliseconds, errors relative.

    A layer that is not installed is `skipped`, one that did not answer within `timeout` seconds `unknown`.
    """
    return _examined(python, kernels, timeout, system)[1]


def judge(snapshot: Snapshot, proofs: Sequence[Proof] = (), *, select: Sequence[str] = (), ignore: Sequence[str] = ()) -> Report:
    """The redacted report on facts gathered here or elsewhere: pure, no input or output but the shipped data.

    `select` and `ignore` take names or codes of rules; raises SelectionError for one that names none.
    """
    selection = Selection(tuple(select), tuple(ignore))
    return redact(diagnose(snapshot, tuple(proofs), Matrices.load(), selection=selection).report, Identity.of_this_process())


def check(
    *,
    python: str | None = None,
    kernels: Kernels = "quick",
    timeout: float = DEFAULT_TIMEOUT_S,
    node: str | None = None,
    system: System | None = None,
) -> Report:
    """The redacted report on this machine: what `cudadoctor check --format json` prints. `node` names it in the report."""
    started = time.monotonic()
    snapshot, proofs = _examined(python, kernels, timeout, system)
    said = ask_plugins(snapshot, proofs, timeout - (time.monotonic() - started))
    diagnosis = diagnose(snapshot, proofs, Matrices.load(), node=node, started=started, plugins=said)
    return redact(diagnosis.report, Identity.of_this_process())


def triage(text: str | bytes) -> Report:
    """The redacted report on pasted text (collect_env, nvidia-smi, tracebacks, logs); nothing that it names is opened or run.

    Raises PasteError where it is no text, or larger than 4 MB.
    """
    from cudadoctor.commands.triage import diagnose_text

    return redact(diagnose_text(text, Matrices.load()).report)


def _examined(python: str | None, kernels: Kernels, timeout: float, system: System | None) -> tuple[Snapshot, tuple[Proof, ...]]:
    from cudadoctor.examination import examine
    from cudadoctor.report.progress import Progress
    from cudadoctor.system import RealSystem

    return examine(system or RealSystem(), Matrices.load(), Progress(), python=python, run_kernels=kernels, timeout=timeout)
