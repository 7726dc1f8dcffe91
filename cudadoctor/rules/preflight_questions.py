"""What a preflight is about: the GPUs and the driver assumed, and what a Dockerfile or a scan tells of the image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cudadoctor.model.fact import Known, maybe
from cudadoctor.model.finding import Evidence
from cudadoctor.model.snapshot import Snapshot

PREFLIGHT = "preflight"
DOCKERFILE = "dockerfile"


def reading(snapshot: Snapshot, kind: str) -> Mapping[str, Any]:
    """What was read of one kind; empty where nothing was."""
    return snapshot.values_read(kind)


def is_preflight(snapshot: Snapshot) -> bool:
    """Is this what is installed, judged for GPUs that are not here?"""
    return bool(reading(snapshot, PREFLIGHT))


@dataclass(frozen=True)
class PlannedBuild:
    """Something that is going to be compiled with CUDA, and where that is said."""

    package: str
    command: str
    source: str
    line: int | None
    certainly: bool
    arch_variable: str
    arch_list: str | None
    for_torch: bool
    without_cuda: bool

    @property
    def title(self) -> str:
        """The package, or the command where none is named."""
        return self.package or f"`{self.command[:60]}`"

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        return (Evidence(fact="builds", value=self.command, source=self.source, line=self.line),)


def planned_builds(snapshot: Snapshot) -> tuple[PlannedBuild, ...]:
    """What a Dockerfile, or --build, says will be compiled; nothing outside of preflights."""
    values = reading(snapshot, DOCKERFILE) or reading(snapshot, PREFLIGHT)
    source = str(values.get("file", "command line"))
    return tuple(
        PlannedBuild(
            package=build["package"],
            command=build["command"],
            source=source,
            line=build["line"],
            certainly=build["certainly"],
            arch_variable=build["arch_variable"],
            arch_list=build["arch_list"],
            for_torch=build["for_torch"],
            without_cuda=build["without_cuda"],
        )
        for build in values.get("builds", ())
    )


def variable_evidence(snapshot: Snapshot, name: str) -> tuple[Evidence, ...]:
    """A variable's value as evidence, with the line that sets it where a Dockerfile does."""
    fact = snapshot.environment
    if not isinstance(fact, Known) or name not in fact.value:
        return ()
    lines = reading(snapshot, DOCKERFILE).get("lines", {})
    return (
        Evidence(fact=f"environment.{name}", value=fact.value[name], source=fact.source, line=lines.get(f"environment.{name}")),
    )


def search_folders(snapshot: Snapshot) -> tuple[tuple[str, tuple[Evidence, ...]], ...]:
    """The folders that the image's loader searches first: LD_LIBRARY_PATH, and what is written to ld.so.conf.d."""
    values = maybe(snapshot.environment) or {}
    proof = variable_evidence(snapshot, "LD_LIBRARY_PATH")
    folders = [(folder.rstrip("/"), proof) for folder in values.get("LD_LIBRARY_PATH", "").split(":") if folder]
    dockerfile = reading(snapshot, DOCKERFILE)
    for each in dockerfile.get("loader_folders", ()):
        written = Evidence(fact="loader_folders", value=each["folder"], source=str(dockerfile.get("file", "")), line=each["line"])
        folders.append((each["folder"].rstrip("/"), (written,)))
    return tuple(folders)
