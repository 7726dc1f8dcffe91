"""Builds the commands of fixes for the installer and platform seen; what a fix would change is its effect on the snapshot."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from itertools import islice

from msgspec import structs

from cudadoctor.matrices.torch_builds import TorchWheel
from cudadoctor.model.fact import NOT_ASKED, Known, maybe
from cudadoctor.model.finding import Fix, Where
from cudadoctor.model.snapshot import LibraryCopy, Package, Platform, Snapshot, Torch, TorchBuild
from cudadoctor.model.versions import DottedVersion, DriverRelease
from cudadoctor.recommend import Target, fitting_wheels, refusal
from cudadoctor.rules.engine import Case, Remedy
from cudadoctor.rules.questions import (
    driver_platform,
    environment,
    gpus_with_capability,
    in_container,
    platform,
    torch_release,
    wheel_platform,
)

BY_FIX = "after the fix"
COMPANIONS = ("torchvision", "torchaudio")
"""Packages that are built for one torch release each and have to move with it."""


def interpreter(snapshot: Snapshot) -> str:
    """The examined interpreter, quoted for a shell."""
    return shlex.quote(maybe(snapshot.python.executable) or "python3")


def recommendation_target(case: Case) -> Target | None:
    """What a torch build must fit on this machine; None where no CUDA wheels exist for the platform or it is unknown."""
    snapshot = case.snapshot
    wheels = wheel_platform(snapshot)
    if wheels is None:
        return None
    version = maybe(snapshot.python.python_version)
    return Target(
        wheels=wheels,
        driver_platform=driver_platform(snapshot),
        capabilities=tuple(dict.fromkeys(gpu.compute_capability for gpu in gpus_with_capability(case))),
        driver_release=maybe(snapshot.driver.driver_release),
        driver_cuda_version=maybe(snapshot.driver.driver_cuda_version),
        python=f"{version.major}.{version.minor}" if version is not None else None,
        glibc=maybe(snapshot.host.glibc),
    )


def install_other_torch(case: Case) -> tuple[Remedy, ...]:
    """Installing the newest torch build that fits; nothing where the matrix knows of none, or no GPU is known to fit it to."""
    target = recommendation_target(case)
    if target is None or not target.capabilities:
        return ()
    return tuple(_install_wheel(case, wheel) for wheel in islice(fitting_wheels(target, case.matrices), 1))


def install_cuda_torch(case: Case) -> tuple[Remedy, ...]:
    """Installing the CUDA build of the torch release that is here, else of the newest release that fits; GPUs restrict where known."""
    target = recommendation_target(case)
    build = maybe(case.snapshot.python.torch)
    if target is None:
        return ()
    release = torch_release(build) if build is not None else None
    wheel = _wheel_of_release(target, case, release) or next(fitting_wheels(target, case.matrices), None)
    return (_install_wheel(case, wheel),) if wheel is not None else ()


def install_torch_build(case: Case, version: str) -> tuple[Remedy, ...]:
    """Installing exactly the build of this version, `2.6.0+cu124`; nothing where no such wheel is known."""
    number, _, tag = version.partition("+")
    target = recommendation_target(case)
    row = case.matrices.torch.release(DottedVersion.parse(number)) if number[:1].isascii() and number[:1].isdigit() else None
    if target is None or row is None:
        return ()
    wheels = case.matrices.torch.wheels_of(row, target.wheels)
    return tuple(_install_wheel(case, wheel) for wheel in wheels if wheel.variant.tag == tag)


def _wheel_of_release(target: Target, case: Case, release: DottedVersion | None) -> TorchWheel | None:
    """The fitting CUDA wheel of exactly this release: that of a plain install, else of the newest CUDA that the driver runs (the oldest, where it is not known)."""
    row = case.matrices.torch.release(release) if release is not None else None
    if row is None or (target.python is not None and target.python not in row.pythons):
        return None
    wheels = case.matrices.torch.wheels_of(row, target.wheels)
    fitting = [wheel for wheel in wheels if refusal(wheel, target, case.matrices) is None]
    driver_known = target.driver_release is not None or target.driver_cuda_version is not None
    if target.capabilities and not driver_known:
        fitting.reverse()
    return next(iter(sorted(fitting, key=lambda wheel: not wheel.on_default_index)), None)


def _install_wheel(case: Case, wheel: TorchWheel) -> Remedy:
    version = f"{wheel.release.version}+{wheel.variant.tag}"
    return Remedy(
        Fix(
            title=f"Install torch {version}: {_why_this_wheel(case, wheel)}",
            commands=(torch_install_command(case.snapshot, wheel),),
            where=Where.CONTAINER if in_container(case.snapshot) else Where.VENV,
            verify=(f"{interpreter(case.snapshot)} -c \"import torch; print(torch.ones(2, device='cuda').sum().item())\"",),
        ),
        _torch_becomes(wheel),
    )


def _why_this_wheel(case: Case, wheel: TorchWheel) -> str:
    """What is known to fit; where the driver is not known, which one the wheel's CUDA needs."""
    driver, cuda = case.snapshot.driver, wheel.variant.cuda
    code = "it has code for this GPU, and " if gpus_with_capability(case) else "a CUDA build; "
    if isinstance(driver.driver_release, Known) or isinstance(driver.driver_cuda_version, Known):
        return f"{code}this driver runs CUDA {cuda}"
    minimum = case.matrices.drivers.minimum_driver(cuda, driver_platform(case.snapshot)) if cuda is not None else None
    return f"{code}its CUDA {cuda} needs " + (f"driver {minimum} or newer" if minimum is not None else "a driver that runs it")


def torch_install_command(snapshot: Snapshot, wheel: TorchWheel) -> str:
    """The command line for the installer seen; the build tag is spelled out, since `+cpu` of the same release would satisfy less."""
    pinned = f"torch=={wheel.release.version}+{wheel.variant.tag}"
    companions = [package.name for package in maybe(snapshot.python.packages) or () if package.name in COMPANIONS]
    packages = " ".join(shlex.quote(name) for name in (pinned, *companions))
    python = interpreter(snapshot)
    if maybe(snapshot.python.installer) == "uv":
        return f"uv pip install --python {python} --upgrade {packages} --index-url {wheel.variant.index_url}"
    return f"{python} -m pip install --upgrade {packages} --index-url {wheel.variant.index_url}"


def _torch_becomes(wheel: TorchWheel) -> Callable[[Snapshot], Snapshot]:
    """The effect of installing this wheel."""

    def effect(snapshot: Snapshot) -> Snapshot:
        version = f"{wheel.release.version}+{wheel.variant.tag}"
        after = Torch(
            imports=Known(True, BY_FIX),
            torch_version=Known(version, BY_FIX),
            build=Known(TorchBuild.CUDA, BY_FIX),
            torch_cuda_version=Known(wheel.variant.cuda, BY_FIX) if wheel.variant.cuda is not None else NOT_ASKED,
            arch_list=Known(wheel.targets, BY_FIX),
        )
        kept = tuple(package for package in maybe(snapshot.python.packages) or () if package.name != "torch")
        python = structs.replace(
            snapshot.python,
            torch=Known(after, BY_FIX),
            packages=Known((*kept, Package(name="torch", package_version=version)), BY_FIX),
        )
        return structs.replace(snapshot, python=python, errors=(), readings=())

    return effect


PACKAGE_MANAGERS = {
    "ubuntu": "apt",
    "debian": "apt",
    "linuxmint": "apt",
    "pop": "apt",
    "fedora": "dnf",
    "rhel": "dnf",
    "rocky": "dnf",
    "almalinux": "dnf",
    "centos": "dnf",
    "amzn": "dnf",
    "ol": "dnf",
    "arch": "pacman",
    "manjaro": "pacman",
    "endeavouros": "pacman",
    "opensuse-leap": "zypper",
    "opensuse-tumbleweed": "zypper",
    "sles": "zypper",
}
"""`ID` of os-release to its package manager (each distribution's documentation)."""
NAMES_FOR_PEOPLE = {
    "ubuntu": "apt",
    "debian": "apt",
    "linux mint": "apt",
    "pop!_os": "apt",
    "fedora": "dnf",
    "red hat": "dnf",
    "rhel": "dnf",
    "rocky": "dnf",
    "alma": "dnf",
    "centos": "dnf",
    "amazon linux": "dnf",
    "arch": "pacman",
    "manjaro": "pacman",
    "opensuse": "zypper",
    "suse": "zypper",
}
"""Beginnings of distributions' names to the package manager."""


def package_manager(snapshot: Snapshot) -> str | None:
    """apt, dnf, pacman or zypper; None where the distribution is unknown. A pasted text gives only its name for people."""
    os_id = maybe(snapshot.host.os_id)
    if os_id is not None:
        return PACKAGE_MANAGERS.get(os_id.lower())
    name = (maybe(snapshot.host.os_name) or "").lower()
    return next((manager for start, manager in NAMES_FOR_PEOPLE.items() if name.startswith(start)), None)


def update_driver(case: Case, minimum: DriverRelease | None) -> tuple[Remedy, ...]:
    """Updating the NVIDIA driver, on the host; root and a reboot are needed."""
    wanted = f" to {minimum.branch} or newer" if minimum is not None else ""
    branch = str(minimum.branch) if minimum is not None else "BRANCH"
    snapshot = case.snapshot
    if platform(snapshot) in (Platform.WSL, Platform.WINDOWS):
        fix = Fix(
            title=f"Update the NVIDIA driver of Windows{wanted} (never inside WSL)",
            where=Where.WINDOWS,
            needs_root=True,
            needs_reboot=True,
            verify=("nvidia-smi",),
        )
        return (Remedy(fix),)
    commands = {
        "apt": (f"sudo apt-get install nvidia-driver-{branch}",) if minimum is not None else ("sudo ubuntu-drivers install",),
        "dnf": ("sudo dnf update 'nvidia-driver*' 'kmod-nvidia*'",),
        "pacman": ("sudo pacman -Syu nvidia-utils",),
        "zypper": ("sudo zypper update 'nvidia*'",),
    }.get(package_manager(snapshot) or "", ())
    if in_container(snapshot):
        commands = ()
    fix = Fix(
        title=f"Or update the NVIDIA driver{wanted}" + (" on the host of this container" if in_container(snapshot) else ""),
        commands=commands,
        where=Where.HOST,
        needs_root=True,
        needs_reboot=True,
        verify=("nvidia-smi",),
    )
    return (Remedy(fix),)


def reload_driver(case: Case) -> tuple[Remedy, ...]:
    """Loading the kernel module that belongs to the installed libraries: a reboot, or a reload where nothing uses the GPU."""
    where = Where.HOST
    note = " of the host" if in_container(case.snapshot) else ""
    return (
        Remedy(
            Fix(
                title=f"Reboot{note}: the module that matches the libraries is then loaded",
                commands=("sudo reboot",),
                where=where,
                needs_root=True,
                needs_reboot=True,
                verify=("nvidia-smi",),
            )
        ),
        Remedy(
            Fix(
                title="Or reload the modules without a reboot, once no process uses the GPU",
                commands=(
                    "sudo lsof /dev/nvidia*",
                    "sudo modprobe -r nvidia_drm nvidia_modeset nvidia_uvm nvidia",
                    "sudo modprobe nvidia",
                ),
                where=where,
                needs_root=True,
                verify=("nvidia-smi",),
            )
        ),
    )


def drop_from_library_path(case: Case, part: str, path: str | None) -> tuple[Remedy, ...]:
    """Taking a folder out of the loader's way: out of LD_LIBRARY_PATH where it stands there, else out of ld.so.conf."""
    entries = environment(case.snapshot).get("LD_LIBRARY_PATH", "").split(":")
    culprits = [
        entry for entry in entries if part in entry or (path is not None and entry and path.startswith(entry.rstrip("/") + "/"))
    ]
    if culprits:
        rest = ":".join(entry for entry in entries if entry and entry not in culprits)
        return (
            Remedy(
                Fix(
                    title=f"Take {', '.join(culprits)} out of LD_LIBRARY_PATH",
                    commands=(f"export LD_LIBRARY_PATH={shlex.quote(rest)}",),
                    where=here(case.snapshot),
                )
            ),
        )
    return (
        Remedy(
            Fix(
                title=f"Take the {part} folder out of the loader's configuration",
                commands=(f"grep -rn {part} /etc/ld.so.conf /etc/ld.so.conf.d/", "sudo ldconfig"),
                where=here(case.snapshot),
                needs_root=True,
                verify=("ldconfig -p | grep libcuda.so",),
            )
        ),
    )


def provide_libcuda(case: Case, elsewhere: Sequence[LibraryCopy]) -> tuple[Remedy, ...]:
    """Bringing the driver's libcuda to where the loader looks."""
    snapshot = case.snapshot
    if elsewhere:
        folder = shlex.quote(elsewhere[0].path.rpartition("/")[0])
        return (
            Remedy(
                Fix(
                    title="Put the folder of the driver's library on the loader's path",
                    commands=(f"export LD_LIBRARY_PATH={folder}:$LD_LIBRARY_PATH",),
                    where=here(snapshot),
                    verify=("cudadoctor check",),
                )
            ),
        )
    if in_container(snapshot):
        return (
            Remedy(
                Fix(
                    title="Start the container with GPU access, so that the host's driver libraries are mounted",
                    commands=("docker run --rm --gpus all IMAGE nvidia-smi",),
                    where=Where.HOST,
                )
            ),
        )
    if platform(snapshot) is Platform.WSL:
        return (
            Remedy(
                Fix(
                    title="Put WSL's driver folder on the loader's path",
                    commands=("export LD_LIBRARY_PATH=/usr/lib/wsl/lib:$LD_LIBRARY_PATH",),
                    where=Where.WSL,
                )
            ),
        )
    commands = {
        "apt": ("sudo ubuntu-drivers install",)
        if maybe(snapshot.host.os_id) == "ubuntu"
        else ("sudo apt-get install nvidia-driver",),
        "dnf": ("sudo dnf install nvidia-driver-cuda",),
        "pacman": ("sudo pacman -S nvidia-utils",),
        "zypper": ("sudo zypper install nvidia-compute-G06",),
    }.get(package_manager(snapshot) or "", ())
    return (
        Remedy(
            Fix(
                title="Install the NVIDIA driver with its user-space libraries",
                commands=commands,
                needs_root=True,
                needs_reboot=True,
                verify=("nvidia-smi",),
            )
        ),
    )


def here(snapshot: Snapshot) -> Where:
    """Where the machine's own commands are typed: in WSL, in the container, or on the host."""
    if platform(snapshot) is Platform.WSL:
        return Where.WSL
    return Where.CONTAINER if in_container(snapshot) else Where.HOST
