"""The container: its kind, what the NVIDIA runtime put into it, and on a host whether that runtime is there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cudadoctor.model.fact import Fact, Known, Missing
from cudadoctor.model.snapshot import Container
from cudadoctor.probes.asking import Answer, ask_file, ask_program, folder_names, not_applicable, not_found

if TYPE_CHECKING:
    from cudadoctor.system import System

CGROUP_WORDS = (("kubepods", "kubernetes"), ("libpod", "podman"), ("docker", "docker"), ("lxc", "lxc"), ("containerd", "other"))
"""What a control group's path contains, and the kind of container that it means."""
NVIDIA_LIBRARY = re.compile(r"/lib(?:cuda|nvidia-[\w-]+|nvcuvid|cudadebugger|nvoptix)\.so[\w.]*$")
DOCKER_SNAP = "/snap/docker"
TOOLKIT_TIMEOUT_S = 2.0


def read_container(system: System) -> Container:
    """The container that this process runs in, and the container tools of a host."""
    if system.platform != "linux":
        outside = not_applicable("container kinds are read on Linux only")
        return Container(kind=outside, nvidia_toolkit=outside, docker_snap=outside, injected_libraries=outside)
    kind = read_kind(system)
    inside = isinstance(kind, Known)
    return Container(
        kind=kind,
        nvidia_toolkit=not_applicable("inside a container") if inside else _nvidia_toolkit(system),
        docker_snap=not_applicable("inside a container") if inside else _docker_snap(system),
        injected_libraries=_injected(system) if inside else not_applicable("outside of containers"),
    )


def read_kind(system: System) -> Fact[str]:
    """docker, podman, kubernetes, singularity, lxc or other; not_applicable outside."""
    environ = system.environ
    if "KUBERNETES_SERVICE_HOST" in environ or system.is_folder("/var/run/secrets/kubernetes.io"):
        return Known("kubernetes", "KUBERNETES_SERVICE_HOST")
    if "APPTAINER_CONTAINER" in environ or "SINGULARITY_CONTAINER" in environ or system.is_folder("/.singularity.d"):
        return Known("singularity", "/.singularity.d")
    for path, kind in (("/run/.containerenv", "podman"), ("/.dockerenv", "docker")):
        if system.exists(path):
            return Known(kind, path)
    manager = environ.get("container", "") or _init_container(system)
    if manager:
        return Known(manager if manager in {"podman", "docker", "lxc"} else "other", f"container={manager}")
    cgroup = ask_file(system, "/proc/1/cgroup")
    named = parse_cgroup(cgroup.text) if isinstance(cgroup, Answer) else ""
    return Known(named, "/proc/1/cgroup") if named else not_applicable("outside of containers")


def parse_cgroup(text: str) -> str:
    """The kind of container that the control groups of process 1 name, or an empty text.

    Sample:
        12:devices:/kubepods/burstable/pod1234/abcd
        0::/system.slice/docker-0123abcd.scope
    """
    return next((kind for word, kind in CGROUP_WORDS if re.search(rf"[:/-]{word}", text)), "")


def parse_mounted_libraries(text: str) -> tuple[str, ...]:
    """Driver libraries that are mounts of their own in /proc/self/mountinfo: only a container runtime does that.

    Sample:
        1234 1200 259:1 /usr/lib64/libcuda.so.580.65.06 /usr/lib64/libcuda.so.580.65.06 ro,nosuid - ext4 /dev/root rw
    """
    points = (fields[4] for fields in (line.split(" ") for line in text.splitlines()) if len(fields) > 4)
    return tuple(dict.fromkeys(point for point in points if NVIDIA_LIBRARY.search(point)))


def _init_container(system: System) -> str:
    """The `container` variable of process 1, which systemd and LXC set."""
    answer = ask_file(system, "/proc/1/environ")
    if isinstance(answer, Missing):
        return ""
    return next((part.partition("=")[2] for part in answer.text.split("\0") if part.startswith("container=")), "")


def _injected(system: System) -> Fact[tuple[str, ...]]:
    answer = ask_file(system, "/proc/self/mountinfo")
    return answer if isinstance(answer, Missing) else Known(parse_mounted_libraries(answer.text), answer.source)


def _nvidia_toolkit(system: System) -> Fact[str]:
    """The version of nvidia-ctk or nvidia-container-cli.

    Sample: `NVIDIA Container Toolkit CLI version 1.17.4`
    """
    programs = [name for name in ("nvidia-ctk", "nvidia-container-cli") if system.which(name)]
    if not programs:
        return not_found("neither nvidia-ctk nor nvidia-container-cli is on the PATH")
    completed = ask_program(system, (programs[0], "--version"), TOOLKIT_TIMEOUT_S, programs[0])
    if isinstance(completed, Missing):
        return completed
    version = re.search(r"(\d+\.\d+\.\d+)", completed.stdout)
    return Known(version[1], programs[0]) if version else not_found(f"{programs[0]} prints no version", programs[0])


def _docker_snap(system: System) -> Fact[bool]:
    docker = system.which("docker")
    if not docker:
        return not_applicable("docker is not installed")
    return Known(docker[0].startswith("/snap/") or "current" in folder_names(system, DOCKER_SNAP), docker[0])
