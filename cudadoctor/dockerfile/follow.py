"""Follows a Dockerfile from the first FROM to the last instruction: the stages and what each holds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from cudadoctor.dockerfile import base_images
from cudadoctor.dockerfile.effects import Kitchen, apply
from cudadoctor.dockerfile.parser import DockerfileError, Instruction
from cudadoctor.dockerfile.shell import commands
from cudadoctor.dockerfile.state import Image, Placed
from cudadoctor.dockerfile.substitution import Expanded, expand, pairs, unquoted

ARCHITECTURES = {"arm64": "aarch64", "aarch64": "aarch64", "amd64": "x86_64"}
MAX_STAGES = 200


@dataclass(frozen=True)
class Followed:
    """The stages in the file's order, and the one that becomes the image."""

    stages: tuple[Image, ...]
    final: Image

    @property
    def builders(self) -> tuple[Image, ...]:
        """The stages, the final one apart, that the image is made of."""
        by_name = {stage.name: stage for stage in self.stages}
        pending, seen = list(self.final.depends_on), set[str]()
        while pending:
            name = pending.pop()
            stage = by_name.get(name)
            if stage is not None and name not in seen and stage is not self.final:
                seen.add(name)
                pending += stage.depends_on
        return tuple(stage for stage in self.stages if stage.name in seen)


@dataclass
class _Walk:
    kitchen: Kitchen
    given: Mapping[str, str]
    global_arguments: dict[str, str] = field(default_factory=dict)
    stages: list[Image] = field(default_factory=list)

    def predefined(self, name: str) -> str | None:
        """The arguments that BuildKit sets; the platform is taken to be Linux on x86-64 unless a build argument says else."""
        platform = self.given.get("TARGETPLATFORM", "linux/amd64")
        values = {
            "TARGETPLATFORM": platform,
            "TARGETOS": "linux",
            "TARGETARCH": platform.rpartition("/")[2],
            "BUILDPLATFORM": "linux/amd64",
            "BUILDARCH": "amd64",
            "BUILDOS": "linux",
        }
        return values.get(name)

    def global_value(self, name: str) -> str | None:
        value = self.global_arguments.get(name)
        return value if value is not None else self.predefined(name)

    def value(self, name: str) -> str | None:
        return self.stages[-1].variable(name) if self.stages else self.global_value(name)


def follow(
    instructions: tuple[Instruction, ...],
    kitchen: Kitchen,
    build_arguments: Mapping[str, str] = MappingProxyType({}),
    target: str | None = None,
) -> Followed:
    """The stages; raises DockerfileError for a stage that does not exist, or a FROM without an image."""
    walk = _Walk(kitchen, build_arguments)
    for instruction in instructions:
        handler = _HANDLERS.get(instruction.keyword)
        if handler is not None:
            handler(walk, instruction)
    return Followed(tuple(walk.stages), _target(walk.stages, target))


def _target(stages: list[Image], target: str | None) -> Image:
    if target is None:
        return stages[-1]
    found = next((stage for stage in stages if stage.name == target.lower()), None)
    if found is None:
        raise DockerfileError(f"it has no stage called {target[:60]!r}; its stages: {', '.join(stage.name for stage in stages)}")
    return found


def _from(walk: _Walk, instruction: Instruction) -> None:
    words = instruction.text.split()
    name = words[2].lower() if len(words) > 2 and words[1].lower() == "as" else str(len(walk.stages))
    if not words or len(walk.stages) >= MAX_STAGES:
        raise DockerfileError(f"line {instruction.line}: FROM names no image" if not words else "it has too many stages")
    expanded = expand(words[0], walk.global_value)
    reference = unquoted(expanded.text)
    earlier = next((stage for stage in walk.stages if stage.name == reference.lower()), None)
    if earlier is not None:
        walk.stages.append(earlier.child(name, instruction.line))
        walk.stages[-1].base = Placed(earlier.base.value if earlier.base else reference, instruction.line, f"FROM {reference}")
        walk.stages[-1].depends_on = {earlier.name}
        return
    image = _image(reference, expanded, instruction, walk)
    image.name = name
    platform = expand(instruction.flag("platform") or "", walk.global_value).text or walk.predefined("TARGETPLATFORM") or ""
    image.architecture = ARCHITECTURES.get(platform.split("/")[1] if "/" in platform else "", "x86_64")
    walk.stages.append(image)


def _image(reference: str, expanded: Expanded, instruction: Instruction, walk: _Walk) -> Image:
    if expanded.unset or not reference:
        names = ", ".join(expanded.unset)
        base = Placed(instruction.text, instruction.line, f"FROM {instruction.text}, where {names} has no default value")
        return Image(base=base, known_contents=False)
    return base_images.image_of(reference, instruction.line, walk.kitchen.matrices)


def _arg(walk: _Walk, instruction: Instruction) -> None:
    for word in instruction.text.split(" ") if "=" not in instruction.text else [instruction.text]:
        named = list(pairs(word)) if "=" in word else [(word, "")]
        for name, raw in named:
            _set_argument(walk, name, raw if "=" in word else None)


def _set_argument(walk: _Walk, name: str, raw: str | None) -> None:
    default = unquoted(expand(raw, walk.value).text) if raw is not None else None
    if not walk.stages:
        value = walk.given.get(name, default)
        if value is not None:
            walk.global_arguments[name] = value
        return
    value = walk.given.get(name, default if default is not None else walk.global_value(name))
    if value is not None and name:
        walk.stages[-1].arguments[name] = value


def _env(walk: _Walk, instruction: Instruction) -> None:
    """ENV may span lines; each name keeps the line that it stands in."""
    if not walk.stages:
        return
    image = walk.stages[-1]
    lines = {name: piece.line for piece in instruction.pieces for name in re.findall(r"(?:^|\s)([A-Za-z_]\w*)=", piece.text)}
    before = dict(image.environment)

    def value_before(name: str) -> str | None:
        placed = before.get(name)
        return placed.value if placed is not None else image.arguments.get(name)

    for name, raw in pairs(instruction.text):
        value = unquoted(expand(raw, value_before).text)
        line = lines.get(name, instruction.line)
        image.environment[name] = Placed(value, line, f"ENV {name}={value[:80]}")


def _run(walk: _Walk, instruction: Instruction) -> None:
    if not walk.stages:
        return
    image = walk.stages[-1]
    kept = dict(image.arguments)
    for command in commands(instruction, image.variable):
        if command.program == "export":
            image.arguments.update(dict(word.partition("=")[::2] for word in command.words[1:] if "=" in word))
        else:
            apply(command, image, walk.kitchen)
    image.arguments = kept  # what a shell exports ends with its RUN


def _workdir(walk: _Walk, instruction: Instruction) -> None:
    if walk.stages:
        image = walk.stages[-1]
        folder = unquoted(expand(instruction.text, image.variable).text)
        image.workdir = folder if folder.startswith("/") else f"{image.workdir.rstrip('/')}/{folder}"


def _copy(walk: _Walk, instruction: Instruction) -> None:
    """`COPY --from=stage`: the packages and toolkits that lie under what is copied come along."""
    origin = instruction.flag("from")
    if origin is None or not walk.stages:
        return
    image = walk.stages[-1]
    reference = expand(origin, walk.global_value).text
    source = _stage(walk, reference)
    if source is None:
        source = base_images.image_of(reference, instruction.line, walk.kitchen.matrices)
    else:
        image.depends_on.add(source.name)
    words = [unquoted(expand(word, image.variable).text) for word in instruction.text.split()]
    for path in words[:-1]:
        _take_over(image, source, path, instruction)


def _stage(walk: _Walk, reference: str) -> Image | None:
    for number, stage in enumerate(walk.stages[:-1]):
        if reference.lower() == stage.name or reference == str(number):
            return stage
    return None


def _take_over(image: Image, source: Image, path: str, instruction: Instruction) -> None:
    plain = path.rstrip("/") or "/"
    because = f"COPY --from={source.name or (source.base.value if source.base else '')} {path}"
    if _covers(plain, source.prefix) or re.search(r"(?:site|dist)-packages", plain):
        if source.torch is not None:
            image.torch = Placed(source.torch.value, instruction.line, because)
        image.torch_unclear = source.torch_unclear if image.torch is None else None
        copied = {name: Placed(each.value, instruction.line, because) for name, each in source.packages.items()}
        image.packages.update(copied)
        image.python = image.python or source.python
    for kit in source.toolkits:
        if _covers(plain, kit.value.root) or plain == "/usr/local/cuda":
            image.toolkits.append(Placed(kit.value, instruction.line, because))


def _covers(folder: str, place: str) -> bool:
    return folder == "/" or place == folder or place.startswith(f"{folder}/")


_HANDLERS = MappingProxyType(
    {"FROM": _from, "ARG": _arg, "ENV": _env, "RUN": _run, "WORKDIR": _workdir, "COPY": _copy, "ADD": _copy}
)
