"""The commands of the core fixes, by installer and platform, and what the install of another torch changes."""

from __future__ import annotations

import pytest
from msgspec import structs

from cudadoctor.matrices import Matrices
from cudadoctor.model.fact import maybe
from cudadoctor.model.finding import Where
from cudadoctor.model.snapshot import Platform, Snapshot
from cudadoctor.model.versions import DriverRelease
from cudadoctor.rules import fixes
from cudadoctor.rules.engine import Case, Outcome, run_rule
from cudadoctor.rules.questions import torch, torch_version_text
from cudadoctor.rules.registry import RULES
from tests.rules import builders
from tests.rules.build_machines import Change, changed, packages
from tests.rules.builders import known


def installer(name: str) -> Change:
    return lambda snapshot: structs.replace(snapshot, python=structs.replace(snapshot.python, installer=known(name)))


def on(os_id: str) -> Change:
    return lambda snapshot: builders.with_host(snapshot, os_id=known(os_id))


def windows(snapshot: Snapshot) -> Snapshot:
    return builders.with_host(snapshot, platform=known(Platform.WINDOWS))


def blackwell_with_old_torch(*changes: Change) -> Snapshot:
    base = builders.healthy("NVIDIA GeForce RTX 5090", "12.0", torch="2.5.1+cu124", archs="sm_50 sm_80 sm_90")
    return changed(base, *changes)


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("pip", "/home/user/venv/bin/python -m pip install --upgrade torch=="),
        ("uv", "uv pip install --python /home/user/venv/bin/python --upgrade torch=="),
    ],
)
def test_torch_is_installed_by_the_installer_seen(name: str, start: str, matrices: Matrices) -> None:
    (remedy,) = fixes.install_other_torch(Case(blackwell_with_old_torch(installer(name)), matrices))
    (command,) = remedy.fix.commands
    assert command.startswith(start)
    assert "--index-url https://download.pytorch.org/whl/cu13" in command


def test_companions_move_with_torch(matrices: Matrices) -> None:
    snapshot = blackwell_with_old_torch(packages(torch="2.5.1+cu124", torchvision="0.20.1+cu124"))
    (remedy,) = fixes.install_other_torch(Case(snapshot, matrices))
    assert " torchvision --index-url" in remedy.fix.commands[0]


def test_other_torch_is_one_that_the_rules_accept(matrices: Matrices) -> None:
    snapshot = blackwell_with_old_torch()
    (remedy,) = fixes.install_other_torch(Case(snapshot, matrices))
    assert remedy.effect is not None
    after = remedy.effect(snapshot)
    build = torch(after)
    assert build is not None
    assert torch_version_text(build) in remedy.fix.title
    rule = next(one for one in RULES if one.name == "arch-missing-in-wheel")
    assert run_rule(rule, Case(snapshot, matrices)).outcome is Outcome.FAIL
    assert run_rule(rule, Case(after, matrices)).outcome is Outcome.PASS


def test_no_torch_for_a_gpu_that_none_serves(matrices: Matrices) -> None:
    kepler = builders.healthy("Tesla K40c", "3.5", driver="470.256.02", cuda="11.4")
    newest = builders.healthy("NVIDIA Z", "17.0")
    assert fixes.install_other_torch(Case(newest, matrices)) == ()
    assert all("cu13" not in one.fix.commands[0] for one in fixes.install_other_torch(Case(kepler, matrices)))


@pytest.mark.parametrize(
    ("change", "command", "where"),
    [
        (on("ubuntu"), "sudo apt-get install nvidia-driver-580", Where.HOST),
        (on("fedora"), "sudo dnf update 'nvidia-driver*' 'kmod-nvidia*'", Where.HOST),
        (on("arch"), "sudo pacman -Syu nvidia-utils", Where.HOST),
        (on("sles"), "sudo zypper update 'nvidia*'", Where.HOST),
        (on("nixos"), None, Where.HOST),
        (windows, None, Where.WINDOWS),
        (builders.with_wsl, None, Where.WINDOWS),
        (lambda snapshot: builders.with_container(snapshot, kind=known("docker")), None, Where.HOST),
    ],
)
def test_driver_is_updated_where_it_lives(change: Change, command: str | None, where: Where, matrices: Matrices) -> None:
    case = Case(changed(builders.healthy(), change), matrices)
    remedy = fixes.update_driver(case, DriverRelease.parse("580.65.06"))[0]
    assert remedy.fix.commands[:1] == ((command,) if command is not None else ())
    assert remedy.fix.where is where
    assert remedy.fix.needs_root
    assert remedy.fix.needs_reboot
    assert "580" in remedy.fix.title


@pytest.mark.parametrize(
    ("os_id", "manager"),
    [("ubuntu", "apt"), ("Debian", "apt"), ("rhel", "dnf"), ("manjaro", "pacman"), ("opensuse-leap", "zypper"), ("nixos", None)],
)
def test_package_manager_of_a_distribution(os_id: str, manager: str | None) -> None:
    assert fixes.package_manager(changed(builders.healthy(), on(os_id))) == manager
    assert fixes.package_manager(Snapshot()) is None


@pytest.mark.parametrize(
    ("value", "part", "command"),
    [
        ("/usr/local/cuda/lib64/stubs:/opt/lib", "stubs", "export LD_LIBRARY_PATH=/opt/lib"),
        ("/usr/local/cuda/compat", "compat", "export LD_LIBRARY_PATH=''"),
        ("/opt/lib", "stubs", "grep -rn stubs /etc/ld.so.conf /etc/ld.so.conf.d/"),
    ],
)
def test_folder_is_taken_off_the_loaders_path(value: str, part: str, command: str, matrices: Matrices) -> None:
    snapshot = builders.with_environment(builders.healthy(), LD_LIBRARY_PATH=value)
    remedy = fixes.drop_from_library_path(Case(snapshot, matrices), part, None)[0]
    assert remedy.fix.commands[0] == command


def test_interpreter_is_quoted_for_a_shell() -> None:
    snapshot = builders.healthy()
    python = structs.replace(snapshot.python, executable=known("/home/a user/bin/python"))
    assert fixes.interpreter(structs.replace(snapshot, python=python)) == "'/home/a user/bin/python'"
    assert fixes.interpreter(Snapshot()) == "python3"
    assert maybe(snapshot.python.executable) == fixes.interpreter(snapshot)
