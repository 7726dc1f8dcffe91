"""The commands of fixes around compiling, for each installer and platform, and what they change."""

from __future__ import annotations

import pytest
from msgspec import structs

from cudadoctor.archs import ArchStyle
from cudadoctor.matrices import Matrices
from cudadoctor.model.fact import maybe
from cudadoctor.model.finding import Where
from cudadoctor.model.snapshot import EnvironmentKind, Platform, Snapshot, Toolkit
from cudadoctor.model.versions import CudaVersion
from cudadoctor.rules import toolkit_fixes
from cudadoctor.rules.engine import Case
from cudadoctor.rules.questions import chosen_toolkit, environment
from tests.rules import builders
from tests.rules.build_machines import Change, changed, compiler, compilers, kit, machine, printed_kit, toolkits, torch, variables
from tests.rules.builders import known

RELEASE = CudaVersion.parse("12.8")


def on(os_id: str) -> Change:
    return lambda snapshot: builders.with_host(snapshot, os_id=known(os_id))


def python(kind: EnvironmentKind, installer: str) -> Change:
    return lambda s: structs.replace(s, python=structs.replace(s.python, kind=known(kind), installer=known(installer)))


def windows(snapshot: Snapshot) -> Snapshot:
    return builders.with_host(snapshot, platform=known(Platform.WINDOWS))


@pytest.mark.parametrize(
    ("change", "first", "where"),
    [
        (on("ubuntu"), "sudo apt-get install cuda-toolkit-12-8", Where.HOST),
        (on("rocky"), "sudo dnf install cuda-toolkit-12-8", Where.HOST),
        (on("opensuse-leap"), "sudo zypper install cuda-toolkit-12-8", Where.HOST),
        (on("nixos"), "export CUDA_HOME=/usr/local/cuda-12.8 PATH=/usr/local/cuda-12.8/bin:$PATH", Where.HOST),
        (windows, "winget install --id Nvidia.CUDA --version 12.8", Where.HOST),
        (builders.with_wsl, "sudo apt-get install cuda-toolkit-12-8", Where.WSL),
        (python(EnvironmentKind.CONDA, "conda"), "conda install -c conda-forge cuda-toolkit 'cuda-version=12.8'", Where.VENV),
        (python(EnvironmentKind.CONDA, "mamba"), "mamba install -c conda-forge cuda-toolkit 'cuda-version=12.8'", Where.VENV),
        (python(EnvironmentKind.CONDA, "pixi"), "pixi add cuda-toolkit 'cuda-version=12.8.*'", Where.VENV),
        (python(EnvironmentKind.CONDA, "pip"), "conda install -c conda-forge cuda-toolkit 'cuda-version=12.8'", Where.VENV),
    ],
)
def test_toolkit_is_installed_by_the_installer_seen(change: Change, first: str, where: Where, matrices: Matrices) -> None:
    (remedy,) = toolkit_fixes.install_toolkit(Case(machine(change), matrices), RELEASE)
    assert remedy.fix.commands[0] == first
    assert remedy.fix.where is where
    assert remedy.fix.needs_root is first.startswith(("sudo", "export"))


def test_no_release_no_fix(matrices: Matrices) -> None:
    assert toolkit_fixes.install_toolkit(Case(machine(), matrices), None) == ()


def test_installed_toolkit_is_the_one_that_builds_take(matrices: Matrices) -> None:
    snapshot = machine(toolkits(kit("11.8")), variables(CUDA_PATH="/usr/local/cuda-11.8"))
    (remedy,) = toolkit_fixes.install_toolkit(Case(snapshot, matrices), RELEASE)
    assert remedy.effect is not None
    after = remedy.effect(snapshot)
    taken = chosen_toolkit(after)
    assert taken is not None
    assert maybe(taken.toolkit_version) == RELEASE
    assert environment(after) == {"CUDA_HOME": "/usr/local/cuda-12.8"}


@pytest.mark.parametrize(
    ("os_id", "commands"),
    [
        ("debian", ("sudo apt-get install g++-12", "export NVCC_CCBIN=g++-12 CUDAHOSTCXX=g++-12")),
        ("arch", ("sudo pacman -S gcc12", "export NVCC_CCBIN=g++-12 CUDAHOSTCXX=g++-12")),
        ("opensuse-leap", ("sudo zypper install gcc12-c++", "export NVCC_CCBIN=g++-12 CUDAHOSTCXX=g++-12")),
        ("unknown", ("export NVCC_CCBIN=g++-12 CUDAHOSTCXX=g++-12",)),
    ],
)
def test_older_gcc_by_distribution(os_id: str, commands: tuple[str, ...], matrices: Matrices) -> None:
    snapshot = machine(on(os_id), toolkits(kit("12.2")), compilers(compiler("13.2")))
    (remedy,) = toolkit_fixes.older_host_compiler(Case(snapshot, matrices))
    assert remedy.fix.commands == commands
    assert "gcc 12, the newest that nvcc 12.2 accepts" in remedy.fix.title


def release(text: str) -> CudaVersion:
    return CudaVersion.parse(text)


@pytest.mark.parametrize(
    ("torch_cuda", "driver_cuda", "allowed", "wanted"),
    [
        ("12.8", "13.0", ("12.6", "12.8", "12.9", "13.0"), "12.8"),
        ("12.4", "13.0", ("12.8", "12.9", "13.0"), "12.9"),
        ("12.4", "12.8", ("12.8", "12.9", "13.0"), "12.8"),
        ("11.8", "12.2", ("12.8", "12.9"), "12.8"),
        ("13.0", "13.0", (), None),
    ],
)
def test_release_that_fits_torch_and_driver(
    torch_cuda: str, driver_cuda: str, allowed: tuple[str, ...], wanted: str | None, matrices: Matrices
) -> None:
    snapshot = machine(torch(torch_cuda_version=known(release(torch_cuda))), cuda=driver_cuda)
    found = toolkit_fixes.fitting_release(Case(snapshot, matrices), [release(text) for text in allowed])
    assert found == (release(wanted) if wanted is not None else None)


def test_releases_for_gpus_of_two_generations(matrices: Matrices) -> None:
    both = machine(gpu="Tesla V100-SXM2-16GB", cc="7.0")
    case = Case(both, matrices)
    assert [str(one) for one in toolkit_fixes.releases_for_gpus(case, (matrices.capabilities.all_ccs()[-1],))] == ["12.9"]
    newest = Case(machine(gpu="NVIDIA Z", cc="17.0"), matrices)
    assert toolkit_fixes.releases_for_gpus(newest) == ()


def test_variable_of_a_windows_shell(matrices: Matrices) -> None:
    case = Case(machine(windows), matrices)
    (remedy,) = toolkit_fixes.set_variable(case, "CUDA_HOME", r"C:\CUDA", "Set it")
    assert remedy.fix.commands == (r"$env:CUDA_HOME = 'C:\CUDA'",)
    (remedy,) = toolkit_fixes.unset_variable(case, "CUDA_HOME", "Unset it")
    assert remedy.fix.commands == ("Remove-Item Env:CUDA_HOME",)


def test_fix_of_a_pasted_text_is_not_called_rechecked(matrices: Matrices) -> None:
    pasted = changed(Snapshot(), toolkits(printed_kit("12.4")))
    (remedy,) = toolkit_fixes.set_variable(Case(pasted, matrices), "CUDA_HOME", "/usr/local/cuda", "Set it")
    assert remedy.effect is None


def test_arch_list_of_the_machine(matrices: Matrices) -> None:
    case = Case(machine(), matrices)
    assert toolkit_fixes.arch_list(case, ArchStyle.TORCH) == "8.9"
    assert toolkit_fixes.arch_list(Case(Snapshot(), matrices), ArchStyle.TORCH) == ""
    (remedy,) = toolkit_fixes.compile_machine_code(case)
    assert remedy.fix.commands == (
        "nvcc -gencode=arch=compute_89,code=sm_89 ...",
        "export TORCH_CUDA_ARCH_LIST=8.9",
    )


@pytest.mark.parametrize(
    ("here", "command"),
    [
        (kit("12.1", chosen=False), "export CUDA_HOME=/usr/local/cuda-12.1 PATH=/usr/local/cuda-12.1/bin:$PATH"),
        (kit("12.1", chosen=False, missing=("nvcc",)), "sudo apt-get install cuda-toolkit-12-1"),
        (kit("13.0", chosen=False), "sudo apt-get install cuda-toolkit-12-1"),
    ],
)
def test_toolkit_of_torchs_major(here: Toolkit, command: str, matrices: Matrices) -> None:
    snapshot = machine(toolkits(kit("11.8"), here))
    remedies = toolkit_fixes.toolkit_for_torch(Case(snapshot, matrices), release("12.1"))
    assert remedies[0].fix.commands[0] == command


@pytest.mark.parametrize(
    ("allowed", "wanted"),
    [(("11.8", "12.8", "12.9", "13.0", "13.5"), "12.9"), (("13.0", "13.1", "13.2"), "13.0"), ((), None)],
)
def test_release_where_neither_torch_nor_driver_is_known(
    allowed: tuple[str, ...], wanted: str | None, matrices: Matrices
) -> None:
    found = toolkit_fixes.fitting_release(Case(Snapshot(), matrices), [release(text) for text in allowed])
    assert found == (release(wanted) if wanted is not None else None)


def test_root_that_a_variable_names_stays_one_for_the_shell(matrices: Matrices) -> None:
    (remedy,) = toolkit_fixes.use_toolkit(Case(Snapshot(), matrices), printed_kit("11.8", "$CONDA_PREFIX/bin/nvcc"))
    assert remedy.fix.commands == ('export CUDA_HOME="$CONDA_PREFIX" PATH="$CONDA_PREFIX"/bin:$PATH',)
