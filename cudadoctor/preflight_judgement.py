"""Judges a preflight: the rules that make sense without hardware, for the image and for the stages that build for it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence

from msgspec import structs

from cudadoctor.diagnosis import Diagnosis, Selection, diagnose, is_named, regraded, summary
from cudadoctor.matrices import Matrices
from cudadoctor.model.finding import Evidence, Finding, Fix, Severity, Where
from cudadoctor.model.report import Verdict
from cudadoctor.model.snapshot import Snapshot
from cudadoctor.requirements import Requirement
from cudadoctor.rules.engine import Rule
from cudadoctor.rules.preflight_questions import DOCKERFILE, planned_builds, reading
from cudadoctor.rules.registry import RULES

ABOUT_A_LIVE_MACHINE = ("CD1", "CD5", "CD6", "CD80")
"""Blocks of rules about a driver, GPUs, containers and kernels that run."""
ALSO_WITHOUT_ONE = frozenset(
    {
        "driver-too-old",
        "stub-libcuda",
        "gpu-dropped-by-driver",
        "driver-older-than-gpu",
        "driver-branch-ended",
        "container-require-unsatisfied",
        "cuda-compat-in-image",
        "driver-capabilities-missing",
    }
)
"""Rules of those blocks that the release of a driver and the contents of an image answer."""
NEEDS_A_LIVE_MACHINE = frozenset(
    {
        "torch-cannot-use-gpu",
        "benign-smi-vs-nvcc",
        "visible-devices-hide-all",
        "visible-devices-invalid",
        "visible-devices-renumbering",
        "device-ordinal-absent",
        "device-order-differs",
        "mps-connection-failed",
        "mig-uuid-app-unsupported",
    }
)
"""Rules of the other blocks that ask what runs."""
ABOUT_COMPILING = frozenset(
    {
        "cuda-home-malformed",
        "cuda-home-wrong",
        "wrong-nvcc-on-path",
        "toolkit-incomplete",
        "toolkit-too-old",
        "toolkit-too-new",
        "host-compiler-too-new",
        "host-compiler-too-old",
        "glibc-too-new",
        "host-compiler-path-broken",
        "nvcc-arch-unsupported",
        "nvcc-arch-removed",
        "arch-list-unknown",
        "arch-list-stale",
        "cmake-arch-invalid",
        "nvcc-fails",
    }
)
"""Rules whose warnings say that they matter only when something is compiled; where it is, they are errors."""
FOR_BUILDERS = ABOUT_COMPILING | {
    "nvcc-missing",
    "arch-list-empty-no-gpu",
    "nvcc-torch-mismatch",
    "extension-built-without-cuda",
    "driver-in-image",
}
"""Rules that are asked of the stages that only build."""
EXPORT = re.compile(r"^export ((?:[A-Za-z_]\w*=(?:'[^']*'|\"[^\"$]*\"|[^\s'\"]+)\s*)+)$")


def preflight_rules(rules: Sequence[Rule] = RULES) -> tuple[Rule, ...]:
    """The rules that what is installed and a driver's release can answer."""
    return tuple(rule for rule in rules if _answers_without_hardware(rule))


def _answers_without_hardware(rule: Rule) -> bool:
    if rule.code.startswith(ABOUT_A_LIVE_MACHINE):
        return rule.name in ALSO_WITHOUT_ONE
    return rule.name not in NEEDS_A_LIVE_MACHINE


def judge(
    image: Snapshot,
    builders: Sequence[Snapshot],
    matrices: Matrices,
    *,
    selection: Selection,
    requirements: tuple[Requirement, ...] = (),
    node: str | None = None,
    started: float | None = None,
) -> Diagnosis:
    """The diagnosis of the image, with what is wrong in the stages that build for it."""
    selection.rules()
    diagnosis = diagnose(
        image,
        (),
        matrices,
        selection=_present(selection, _graded(image)),
        requirements=requirements,
        node=node,
        started=started,
        rules=_graded(image),
    )
    findings = [_placed(finding, image) for finding in diagnosis.report.findings]
    for stage in builders:
        rules = tuple(rule for rule in _graded(stage) if rule.name in FOR_BUILDERS)
        of_stage = diagnose(stage, (), matrices, selection=_present(selection, rules), rules=rules).report.findings
        findings += [_placed(_of_stage(finding, stage), stage) for finding in of_stage]
    return _with_findings(diagnosis, _sorted(findings))


def _graded(snapshot: Snapshot) -> tuple[Rule, ...]:
    """The rules, those about compiling with their warnings as errors where something is going to be compiled."""
    if not any(build.certainly for build in planned_builds(snapshot)):
        return preflight_rules()
    return tuple(regraded(rule, _as_error) if rule.name in ABOUT_COMPILING else rule for rule in preflight_rules())


def _as_error(severity: Severity) -> Severity:
    return Severity.ERROR if severity is Severity.WARNING else severity


def _present(selection: Selection, rules: Sequence[Rule]) -> Selection:
    """The selection without entries that name only rules which are not asked here (all entries are known to name one)."""

    def named(entry: str) -> bool:
        return any(is_named(entry, rule) for rule in rules)

    select = tuple(entry for entry in selection.select if named(entry))
    nothing = bool(selection.select) and not select
    return Selection(
        select,
        tuple(rule.code for rule in rules) if nothing else tuple(entry for entry in selection.ignore if named(entry)),
        tuple((name, severity) for name, severity in selection.severities if named(name)),
    )


def _of_stage(finding: Finding, stage: Snapshot) -> Finding:
    name = reading(stage, DOCKERFILE).get("stage", "")
    return structs.replace(finding, subject=f"stage {name}: {finding.subject}")


def _sorted(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda f: (not f.root, f.severity.rank, f.confidence.rank, f.code, f.subject)))


def _with_findings(diagnosis: Diagnosis, findings: tuple[Finding, ...]) -> Diagnosis:
    report = diagnosis.report
    errors = any(finding.severity is Severity.ERROR for finding in findings)
    verdict = Verdict.PROBLEMS if errors else report.verdict
    new = structs.replace(report, findings=findings, verdict=verdict, summary=summary(verdict, findings, ()))
    return Diagnosis(new, diagnosis.results)


# Lines of a Dockerfile


def _placed(finding: Finding, snapshot: Snapshot) -> Finding:
    """The finding with the lines of the Dockerfile in its evidence, and fixes written as instructions."""
    values = reading(snapshot, DOCKERFILE)
    if not values:
        return finding
    evidence = tuple(_with_line(item, values) for item in finding.evidence)
    if not any(item.line is not None for item in evidence) and values.get("base_line"):
        base = Evidence(fact="base image", value=str(values["base"]), source=str(values["file"]), line=values["base_line"])
        evidence = (*evidence, base)
    return structs.replace(finding, evidence=evidence, fixes=tuple(_as_instruction(fix) for fix in finding.fixes))


def _with_line(item: Evidence, values: Mapping[str, object]) -> Evidence:
    """Evidence about a variable or package with the line that sets it."""
    lines = values.get("lines")
    if item.line is not None or not isinstance(lines, dict):
        return item
    keys = (item.fact, f"{item.fact}.{item.value.partition(' ')[0]}")
    line = next((lines[key] for key in keys if key in lines), None)
    return item if line is None else structs.replace(item, source=str(values["file"]), line=line)


def _as_instruction(fix: Fix) -> Fix:
    """Commands for the image's shell as the instructions that stand for them; those for the host as they are."""
    if fix.where not in (Where.CONTAINER, Where.VENV):
        return fix
    return structs.replace(fix, commands=tuple(_instruction(command) for command in fix.commands), verify=())


def _instruction(command: str) -> str:
    match = EXPORT.match(command)
    if match is not None:
        return f"ENV {match[1].strip()}"
    if command.startswith(("FROM ", "ENV ", "RUN ")):
        return command
    if command.startswith("unset "):
        return f"# take {shlex.split(command)[1]} out of ENV"
    plain = command.removeprefix("sudo ").replace("apt-get install ", "apt-get install -y ", 1).replace("-y -y", "-y")
    return f"RUN {plain}"


def target_sentence(target: str, policy: str) -> str:
    """What was judged for, for the end of the summary."""
    parts = [f"Judged for {target}." if target else "Judged against itself: no --gpu and no --driver was given."]
    if policy:
        parts.append(f"Policy: {policy}.")
    return " ".join(parts)
