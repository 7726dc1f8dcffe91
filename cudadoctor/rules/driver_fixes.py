"""Builds the fixes of driver, container and environment problems for the platform and distribution seen."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from msgspec import structs

from cudadoctor.model.fact import NOT_ASKED, Known, maybe
from cudadoctor.model.finding import Fix, Where
from cudadoctor.model.snapshot import DeviceNode, Snapshot
from cudadoctor.model.versions import DriverRelease
from cudadoctor.rules.circumstances import container_shown, in_wsl
from cudadoctor.rules.engine import Case, Remedy
from cudadoctor.rules.fixes import BY_FIX, package_manager

TOOLKIT_GUIDE = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/troubleshooting.html"
KERNEL_LOG = "sudo dmesg | grep -iE 'nvrm|nvidia|nouveau|xid' | tail -30"
Effect = Callable[[Snapshot], Snapshot]


def here(case: Case) -> Where:
    """Where commands about this system are to be typed."""
    if in_wsl(case):
        return Where.WSL
    return Where.CONTAINER if container_shown(case) else Where.HOST


def as_root(title: str, *commands: str, verify: tuple[str, ...] = ("nvidia-smi",), effect: Effect | None = None) -> Remedy:
    """Commands for the host's administrator that need no reboot."""
    return Remedy(Fix(title=title, commands=commands, needs_root=True, verify=verify), effect)


def as_root_with_reboot(title: str, *commands: str, verify: tuple[str, ...] = ("nvidia-smi",)) -> Remedy:
    """Commands for the host's administrator that take effect at the next boot."""
    return Remedy(Fix(title=title, commands=commands, needs_root=True, needs_reboot=True, verify=verify))


def on_windows_side(title: str, *commands: str, verify: tuple[str, ...] = ()) -> Remedy:
    """Commands to type in Windows, outside WSL."""
    return Remedy(Fix(title=title, commands=commands, where=Where.WINDOWS, verify=verify))


def as_user(case: Case, title: str, *commands: str, verify: tuple[str, ...] = (), effect: Effect | None = None) -> Remedy:
    """Commands that need no root, on the system that was examined."""
    return Remedy(Fix(title=title, commands=commands, where=here(case), verify=verify), effect)


def read_kernel_log() -> Remedy:
    """Looking at what the kernel driver says."""
    return as_root("See what the kernel driver says", KERNEL_LOG, verify=())


# ---------------------------------------------------------------- environment variables


def without_variable(name: str) -> Effect:
    """The effect of unsetting a variable: what CUDA answered with it is no longer known."""
    return _environment_becomes(lambda variables: {key: value for key, value in variables.items() if key != name})


def with_variable(name: str, value: str) -> Effect:
    """The effect of setting a variable: what CUDA answered without it is no longer known."""
    return _environment_becomes(lambda variables: {**variables, name: value})


def _environment_becomes(change: Callable[[dict[str, str]], dict[str, str]]) -> Effect:
    def effect(snapshot: Snapshot) -> Snapshot:
        driver = structs.replace(snapshot.driver, cu_init=NOT_ASKED, visible_device_count=NOT_ASKED)
        variables = change(dict(maybe(snapshot.environment) or {}))
        return structs.replace(snapshot, driver=driver, environment=Known(variables, BY_FIX), errors=())

    return effect


def unset(case: Case, name: str) -> tuple[Remedy, ...]:
    """Unsetting a variable."""
    return (as_user(case, f"Unset {name}", f"unset {name}", verify=("cudadoctor check",), effect=without_variable(name)),)


def set_to(case: Case, name: str, value: str, title: str = "") -> tuple[Remedy, ...]:
    """Setting a variable to a value."""
    command = f"export {name}={shlex.quote(value)}"
    return (
        as_user(
            case, title or f"Set {name} to {value}", command, verify=("cudadoctor check",), effect=with_variable(name, value)
        ),
    )


# ---------------------------------------------------------------- kernel modules


def build_module_for_kernel(case: Case) -> tuple[Remedy, ...]:
    """Installing the headers of the running kernel and building the nvidia module for it; or booting a kernel that has one."""
    commands = {
        "apt": ("sudo apt-get install linux-headers-$(uname -r)", "sudo dkms autoinstall", "sudo modprobe nvidia"),
        "dnf": (
            "sudo dnf install kernel-devel-$(uname -r)",
            "sudo akmods --force || sudo dkms autoinstall",
            "sudo modprobe nvidia",
        ),
        "pacman": ("sudo pacman -S --needed linux-headers nvidia-open-dkms", "sudo dkms autoinstall", "sudo modprobe nvidia"),
        "zypper": ("sudo zypper install kernel-default-devel", "sudo dkms autoinstall", "sudo modprobe nvidia"),
    }.get(package_manager(case.snapshot) or "", ("sudo dkms autoinstall", "sudo modprobe nvidia"))
    return (
        as_root("Install the running kernel's headers and build the module for it", *commands),
        as_root_with_reboot("Or boot a kernel for which the module is built", "dkms status", "sudo reboot"),
    )


def trust_module_key(case: Case) -> tuple[Remedy, ...]:
    """Enrolling the key that signed the module; or turning Secure Boot off in the firmware."""
    commands = {
        "apt": ("sudo update-secureboot-policy --enroll-key || sudo mokutil --import /var/lib/shim-signed/mok/MOK.der",),
        "dnf": (
            "sudo kmodgenca -a",
            "sudo mokutil --import /etc/pki/akmods/certs/public_key.der",
            "sudo akmods --force --rebuild",
        ),
        "zypper": ("sudo mokutil --import /usr/share/nvidia-pubkeys/*.der",),
    }.get(package_manager(case.snapshot) or "", ("sudo mokutil --import MOK.der",))
    return (
        as_root_with_reboot(
            "Enrol the key that signs the module (choose 'Enroll MOK' in the blue screen of the next boot)",
            *commands,
            "sudo reboot",
            verify=("mokutil --sb-state", "nvidia-smi"),
        ),
        as_root_with_reboot("Or turn Secure Boot off in the firmware's set-up", "sudo systemctl reboot --firmware-setup"),
    )


def drop_nouveau(case: Case) -> tuple[Remedy, ...]:
    """Keeping nouveau from loading, so that nvidia can take the GPU."""
    rebuild = {
        "apt": "sudo update-initramfs -u",
        "dnf": "sudo dracut --force",
        "zypper": "sudo dracut --force",
        "pacman": "sudo mkinitcpio -P",
    }.get(package_manager(case.snapshot) or "", "sudo update-initramfs -u || sudo dracut --force")
    return (
        as_root_with_reboot(
            "Keep nouveau from loading, with the NVIDIA driver installed",
            "printf 'blacklist nouveau\\noptions nouveau modeset=0\\n' | sudo tee /etc/modprobe.d/blacklist-nouveau.conf",
            rebuild,
            "sudo reboot",
            verify=("lsmod | grep -E 'nouveau|nvidia'", "nvidia-smi"),
        ),
    )


def install_proprietary_module(case: Case, branch: int | None) -> tuple[Remedy, ...]:
    """Replacing the open kernel module by the proprietary one of a branch."""
    number = str(branch) if branch is not None else "BRANCH"
    commands = {
        "apt": (f"sudo apt-get install nvidia-driver-{number}",),
        "dnf": (f"sudo dnf module switch-to nvidia-driver:{number}-dkms",),
        "pacman": (f"yay -S nvidia-{number}xx-dkms",),
        "zypper": ("sudo zypper install nvidia-driver-G06-kmp-default",),
    }.get(package_manager(case.snapshot) or "", ("sudo sh NVIDIA-Linux-x86_64-RELEASE.run --kernel-module-type=proprietary",))
    return (as_root_with_reboot(f"Install the proprietary kernel module of branch {number}", *commands, "sudo reboot"),)


def install_open_module(case: Case, branch: int | None) -> tuple[Remedy, ...]:
    """Replacing the proprietary kernel module by the open one of a branch."""
    number = str(branch) if branch is not None else "BRANCH"
    commands = {
        "apt": (f"sudo apt-get install nvidia-driver-{number}-open",),
        "dnf": ("sudo dnf module switch-to nvidia-driver:open-dkms",),
        "pacman": ("sudo pacman -S nvidia-open-dkms",),
        "zypper": ("sudo zypper install nvidia-open-driver-G06-signed-kmp-default",),
    }.get(package_manager(case.snapshot) or "", ("sudo sh NVIDIA-Linux-x86_64-RELEASE.run --kernel-module-type=open",))
    return (as_root_with_reboot(f"Install the open kernel module of branch {number}", *commands, "sudo reboot"),)


def install_driver_branch(case: Case, branch: int, title: str) -> tuple[Remedy, ...]:
    """Installing a certain driver branch."""
    commands = {
        "apt": (f"sudo apt-get install nvidia-driver-{branch}",),
        "dnf": (f"sudo dnf module install nvidia-driver:{branch}-dkms",),
        "pacman": (f"yay -S nvidia-{branch}xx-dkms",),
        "zypper": (f"sudo zypper install 'nvidia-driver*{branch}*'",),
    }.get(package_manager(case.snapshot) or "", ())
    return (as_root_with_reboot(title, *commands, "sudo reboot"),)


# ---------------------------------------------------------------- device nodes


def reload_uvm() -> tuple[Remedy, ...]:
    """Reloading the unified-memory module, once nothing uses the GPU."""
    return (
        as_root(
            "Reload the unified-memory module, once no process uses the GPU",
            "sudo lsof /dev/nvidia-uvm",
            "sudo modprobe -r nvidia_uvm",
            "sudo modprobe nvidia_uvm",
            verify=("cudadoctor check",),
        ),
        as_root(
            "Keep it from happening again: preserve video memory over a suspend",
            "echo 'options nvidia NVreg_PreserveVideoMemoryAllocations=1' | sudo tee /etc/modprobe.d/nvidia-suspend.conf",
            "sudo systemctl enable nvidia-suspend nvidia-resume nvidia-hibernate",
            verify=(),
        ),
    )


def load_uvm(case: Case) -> tuple[Remedy, ...]:
    """Loading the unified-memory module and making its device node, on the host; and passing the node into a container."""
    load = as_root(
        "Load the unified-memory module and make its device nodes",
        "sudo modprobe nvidia_uvm",
        "sudo nvidia-modprobe -u -c=0",
        verify=("ls -l /dev/nvidia-uvm", "cudadoctor check"),
        effect=_uvm_appears,
    )
    if not container_shown(case):
        return (load,)
    pass_in = Fix(
        title="Pass the unified-memory nodes into the container as well",
        commands=("docker run --gpus all --device /dev/nvidia-uvm --device /dev/nvidia-uvm-tools IMAGE",),
        where=Where.HOST,
    )
    return (load, Remedy(pass_in, _uvm_appears))


def _uvm_appears(snapshot: Snapshot) -> Snapshot:
    nodes = (*(maybe(snapshot.driver.device_nodes) or ()), DeviceNode(path="/dev/nvidia-uvm", accessible=True))
    modules = (*(maybe(snapshot.driver.loaded_modules) or ()), "nvidia_uvm")
    driver = structs.replace(
        snapshot.driver,
        device_nodes=Known(nodes, BY_FIX),
        loaded_modules=Known(modules, BY_FIX),
        cu_init=NOT_ASKED,
        visible_device_count=NOT_ASKED,
    )
    return structs.replace(snapshot, driver=driver, errors=())


def branch_release(branch: int) -> DriverRelease:
    """A branch as the release that fixes ask for."""
    return DriverRelease.parse(str(branch))


def open_device_nodes(nodes: tuple[DeviceNode, ...]) -> tuple[Remedy, ...]:
    """Giving this user access to the device nodes."""
    paths = " ".join(shlex.quote(node.path) for node in nodes) or "/dev/nvidia*"
    return (
        as_root(
            "Let members of the nodes' group use the GPU, and join it (log in again afterwards)",
            f"ls -l {paths}",
            'sudo usermod -aG "$(stat -c %G /dev/nvidiactl)" "$USER"',
            verify=("id -nG", "nvidia-smi"),
            effect=_nodes_become_accessible,
        ),
        as_root(
            "Or open the nodes for every user, as the driver does by default",
            f"sudo chmod a+rw {paths}",
            effect=_nodes_become_accessible,
        ),
    )


def _nodes_become_accessible(snapshot: Snapshot) -> Snapshot:
    nodes = tuple(structs.replace(node, accessible=True, detail="") for node in maybe(snapshot.driver.device_nodes) or ())
    driver = structs.replace(
        snapshot.driver,
        device_nodes=Known(nodes, BY_FIX),
        cu_init=NOT_ASKED,
        visible_device_count=NOT_ASKED,
        nvml=NOT_ASKED,
        nvidia_smi=NOT_ASKED,
    )
    return structs.replace(snapshot, driver=driver, errors=())


def start_fabric_manager(case: Case, branch: int | None) -> tuple[Remedy, ...]:
    """Installing the fabric manager of the driver's branch and starting it."""
    number = str(branch) if branch is not None else "BRANCH"
    commands = {
        "apt": (f"sudo apt-get install nvidia-fabricmanager-{number}",),
        "dnf": (f"sudo dnf module install nvidia-driver:{number}/fm",),
        "zypper": ("sudo zypper install nvidia-fabricmanager",),
    }.get(package_manager(case.snapshot) or "apt", ())
    return (
        as_root(
            "Install the fabric manager of exactly the driver's release and start it",
            *commands,
            "sudo systemctl enable --now nvidia-fabricmanager",
            verify=("systemctl status nvidia-fabricmanager", "nvidia-smi -q | grep -A3 Fabric"),
        ),
    )


def put_first_on_library_path(case: Case, folder: str, where: Where | None = None) -> tuple[Remedy, ...]:
    """Putting a folder on the loader's path: for this shell, or for the whole system."""
    place = where or here(case)
    return (
        Remedy(
            Fix(
                title=f"Put {folder} on the loader's path",
                commands=(f"export LD_LIBRARY_PATH={shlex.quote(folder)}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}",),
                where=place,
                verify=("cudadoctor check",),
            )
        ),
        Remedy(
            Fix(
                title="Or for every program of this system",
                commands=(f"echo {shlex.quote(folder)} | sudo tee /etc/ld.so.conf.d/000-nvidia-driver.conf", "sudo ldconfig"),
                where=place,
                needs_root=True,
                verify=("ldconfig -p | grep libcuda.so.1",),
            )
        ),
    )
