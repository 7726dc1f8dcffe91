"""What each rule says, word for word, where a ticket or a recorded machine makes it speak (tests/golden/sentences.txt).

One example a rule, the one with the most to say. A sentence, piece of evidence or fix that changes or is lost shows as a diff.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cudadoctor.commands import demo
from cudadoctor.matrices import Matrices
from cudadoctor.model.finding import Finding
from cudadoctor.readers.paste import read_paste
from cudadoctor.rules.engine import Case, evaluate
from cudadoctor.rules.registry import RULES
from tests.rules.builders import whole
from tests.rules.test_driver_texts import pasted_texts
from tests.tickets.scoring import OPEN, UNSEEN, cases_in

MATRICES = Matrices.load()


def cases() -> Iterator[tuple[str, Case]]:
    """All tickets, pasted texts and recorded machines, by name."""
    for ticket in (ticket for path in (OPEN, UNSEEN) for ticket in cases_in(path)):
        paste = read_paste(ticket.pasted)
        yield ticket.id, Case(paste.snapshot, MATRICES, paste.proofs)
    for text in pasted_texts():
        yield text.name, Case(read_paste(text.text).snapshot, MATRICES)
    for name in demo.names():
        report = demo.load(name).report
        if report is not None:
            yield name, Case(report.snapshot, MATRICES, report.proofs)


def page(name: str, finding: Finding) -> str:
    """The finding with all that it says."""
    tags = f" {' '.join(finding.tags)}" if finding.tags else ""
    lines = [f"{finding.code} {finding.name}: {finding.severity.value}, {finding.confidence.value}{tags} ({name})"]
    lines += [f"  {finding.subject}: {finding.what}", *([f"  {finding.why}"] if finding.why else [])]
    lines += [f"  = {each.fact}: {each.value} [{each.source}]" for each in finding.evidence]
    for fix in finding.fixes:
        words = (fix.where.value, "root" * fix.needs_root, "reboot" * fix.needs_reboot, "rechecked" * fix.rechecked)
        lines.append(f"  > {fix.title} ({', '.join(word for word in words if word)})")
        lines += [f"    $ {command}" for command in fix.commands] + [f"    ? {command}" for command in fix.verify]
    return "\n".join([*lines, *(f"  see {reference}" for reference in finding.references)])


def richest(findings: list[tuple[str, Finding]]) -> str:
    """The page that is longest; of equals the first by name."""
    return min((page(name, finding) for name, finding in findings), key=lambda text: (-text.count("\n"), text))


def test_what_each_rule_says_is_what_was_read_and_found_good(golden: Callable[[str, str], None]) -> None:
    said: dict[str, list[tuple[str, Finding]]] = {}
    for name, case in cases():
        for finding in whole(evaluate(case, RULES)).findings:
            said.setdefault(finding.code, []).append((name, finding))
    golden("sentences.txt", "\n\n".join(richest(said[code]) for code in sorted(said)) + "\n")
