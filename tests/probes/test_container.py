from __future__ import annotations

from pathlib import Path

import pytest

from cudadoctor.model.fact import Missing, MissingReason, known, maybe
from cudadoctor.probes.container import parse_cgroup, parse_mounted_libraries, read_container
from tests.fakes.fakebin import Says, fake_program
from tests.fakes.roots import linux, windows


@pytest.mark.parametrize(
    ("files", "environ", "kind"),
    [
        ({"/.dockerenv": ""}, {}, "docker"),
        ({"/run/.containerenv": ""}, {}, "podman"),
        ({"/.dockerenv": ""}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ({"/.singularity.d/runscript": ""}, {}, "singularity"),
        ({}, {"APPTAINER_CONTAINER": "/x.sif"}, "singularity"),
        ({"/proc/1/environ": "PATH=/bin\0container=lxc\0"}, {}, "lxc"),
        ({}, {"container": "oci"}, "other"),
        ({"/proc/1/cgroup": "0::/system.slice/docker-0123abcd.scope\n"}, {}, "docker"),
        ({"/proc/1/cgroup": "12:devices:/kubepods/burstable/pod1\n"}, {}, "kubernetes"),
        ({"/proc/1/cgroup": "1:name=systemd:/lxc/web\n"}, {}, "lxc"),
        ({"/proc/1/cgroup": "0::/init.scope\n"}, {}, None),
        ({}, {}, None),
    ],
)
def test_the_kind_of_container(tmp_path: Path, files: dict[str, str], environ: dict[str, str], kind: str | None) -> None:
    assert maybe(read_container(linux(tmp_path, files, environ=environ)).kind) == kind


def test_a_docker_service_on_a_host_is_no_container() -> None:
    assert parse_cgroup("0::/user.slice/user-1000.slice/mydocker\n") == ""


def test_driver_libraries_that_are_mounts_were_injected(tmp_path: Path) -> None:
    mounts = (
        "700 600 8:1 / / rw - overlay overlay rw\n"
        "701 700 8:2 /usr/lib/libcuda.so.580.65.06 /usr/lib/x86_64-linux-gnu/libcuda.so.580.65.06 ro - ext4 /dev/sda2 rw\n"
        "702 700 8:2 /x /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.65.06 ro - ext4 /dev/sda2 rw\n"
        "703 700 8:2 /x /etc/hosts rw - ext4 /dev/sda2 rw\n"
        "garbage\n"
    )
    container = read_container(linux(tmp_path, {"/.dockerenv": "", "/proc/self/mountinfo": mounts}))
    folder = "/usr/lib/x86_64-linux-gnu"
    assert known(container.injected_libraries) == (f"{folder}/libcuda.so.580.65.06", f"{folder}/libnvidia-ml.so.580.65.06")
    assert parse_mounted_libraries("") == ()


def test_a_host_has_its_container_tools_described(tmp_path: Path) -> None:
    fake_program(tmp_path / "usr/bin/nvidia-ctk", "NVIDIA Container Toolkit CLI version 1.17.4\ncommit: 9b69590\n")
    fake_program(tmp_path / "snap/bin/docker")
    container = read_container(linux(tmp_path, environ={"PATH": "/usr/bin:/snap/bin"}))
    assert known(container.nvidia_toolkit) == "1.17.4"
    assert known(container.docker_snap) is True
    assert isinstance(container.injected_libraries, Missing)


def test_a_container_tool_that_fails_is_missing_with_its_words(tmp_path: Path) -> None:
    fake_program(tmp_path / "usr/bin/nvidia-container-cli", Says(stderr="initialization error", exit_code=1))
    fact = read_container(linux(tmp_path, environ={"PATH": "/usr/bin"})).nvidia_toolkit
    assert isinstance(fact, Missing)
    assert (fact.reason, fact.detail) == (MissingReason.FAILED, "exit code 1: initialization error")


def test_elsewhere_nothing_of_it_applies(tmp_path: Path) -> None:
    kind = read_container(windows(tmp_path, {})).kind
    assert isinstance(kind, Missing)
    assert kind.reason is MissingReason.NOT_APPLICABLE
