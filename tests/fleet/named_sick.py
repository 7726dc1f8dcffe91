"""The nodes that a summary names as odd, by what it says of them, in the words of the generated fleet."""

from __future__ import annotations

from pathlib import Path

from cudadoctor.fleet.summary import FleetSummary
from tests.fleet.generated import CHANGES

OF_FINDING = {
    "xid-bus-error": "gpu lost",
    "ecc-uncorrected": "memory errors",
    "driver-too-old": "old driver",
    "ptx-newer-than-driver": "old driver",
    "cpu-only-torch": "cpu torch",
    "kernel-proof-fails": "wrong numbers",
    "nvidia-smi-hangs": "undetermined",
}


def named_sick(summary: FleetSummary) -> dict[str, set[str]]:
    """Ailment to nodes; what is said of a node that is no ailment known here stands under its own words."""
    named: dict[str, set[str]] = {ailment: set() for ailment in CHANGES}
    for row in summary.classes:
        words = [OF_FINDING.get(finding.name, finding.name) for finding in row.findings]
        words += ["undetermined"] if row.verdict == "undetermined" else []
        for word in words:
            named.setdefault(word, set()).update(row.nodes)
    for drift in summary.drift:
        for share in drift.shares[1:]:
            named.setdefault("drifted", set()).update(share.nodes)
    named["fewer gpus"].update(each.node for each in summary.fewer_gpus)
    named["straggler"].update(each.node for each in summary.stragglers)
    named["cut short"].update(Path(each.file).name.removesuffix(".json") for each in summary.unreadable)
    named["silent"].update(set(summary.not_reported) - named["cut short"])
    named["fewer gpus"] -= named["gpu lost"]  # follows from the other
    named["drifted"] -= named["old driver"] | named["cpu torch"]
    return named
