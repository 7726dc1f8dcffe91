"""Where a fix is applied, in words."""

from __future__ import annotations

from cudadoctor.model.fact import Known
from cudadoctor.model.finding import Fix, Where
from cudadoctor.model.report import Report

PLACES = {
    Where.HOST: "on the host",
    Where.CONTAINER: "in the container",
    Where.WSL: "inside WSL",
    Where.WINDOWS: "on Windows",
    Where.VENV: "in the examined environment",
}


def host_is_elsewhere(report: Report) -> bool:
    """Is `the host` another place than the one that was examined?"""
    return isinstance(report.snapshot.container.kind, Known) or isinstance(report.snapshot.wsl.wsl_version, Known)


def place(fix: Fix, elsewhere: bool) -> str:
    """Where and how a fix is applied; empty where there is nothing to say."""
    words = [] if fix.where is Where.HOST and not elsewhere else [PLACES[fix.where]]
    words += ["as root"] if fix.needs_root else []
    words += ["then reboot"] if fix.needs_reboot else []
    return ", ".join(words)
