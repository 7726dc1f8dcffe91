"""`read_dockerfile`: the snapshots of a Dockerfile's image and of the stages that it is built in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from cudadoctor.dockerfile.effects import Kitchen
from cudadoctor.dockerfile.follow import follow
from cudadoctor.dockerfile.parser import MAX_BYTES, DockerfileError, parse
from cudadoctor.dockerfile.snapshots import snapshot_of
from cudadoctor.matrices import Matrices
from cudadoctor.model.snapshot import Snapshot


@dataclass(frozen=True)
class DockerfileSnapshots:
    """The image, and the stages that only build for it."""

    image: Snapshot
    builders: tuple[Snapshot, ...]


def read_dockerfile(
    path: Path,
    matrices: Matrices,
    *,
    build_arguments: Mapping[str, str] = MappingProxyType({}),
    target: str | None = None,
) -> DockerfileSnapshots:
    """What the image of this Dockerfile would hold; raises DockerfileError where it cannot be read or is none."""
    instructions = parse(_bytes(path))
    followed = follow(instructions, Kitchen(matrices, path.parent), build_arguments, target)
    builders = tuple(snapshot_of(stage, path.name) for stage in followed.builders if stage.builds)
    return DockerfileSnapshots(snapshot_of(followed.final, path.name), builders)


def _bytes(path: Path) -> bytes:
    try:
        if not path.is_file():
            path.stat()
            raise DockerfileError("it is not a regular file")
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise DockerfileError(error.strerror or str(error)) from error
