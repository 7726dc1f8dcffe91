"""The platforms that the matrices tell apart: whose numbers a driver has, and which wheels are installed."""

from __future__ import annotations

from enum import Enum

from cudadoctor.model.snapshot import Platform


class DriverPlatform(Enum):
    """Whose release numbers a driver has: WSL2 uses the driver of its Windows host."""

    LINUX = "linux"
    WINDOWS = "windows"

    @classmethod
    def of(cls, platform: Platform) -> DriverPlatform | None:
        """The numbering on a machine; None on macOS, which has no driver."""
        return _DRIVERS.get(platform)


class WheelPlatform(Enum):
    """Which wheels of a package are installed; WSL2 takes those of Linux."""

    LINUX_X86_64 = "linux-x86_64"
    LINUX_AARCH64 = "linux-aarch64"
    WINDOWS = "windows"

    @classmethod
    def of(cls, platform: Platform, architecture: str) -> WheelPlatform | None:
        """The wheels for a machine (`architecture` as `uname -m` prints it); None where there are no CUDA wheels."""
        if platform in (Platform.LINUX, Platform.WSL):
            return _LINUX.get(architecture.lower())
        return cls.WINDOWS if platform is Platform.WINDOWS and architecture.lower() in ("x86_64", "amd64") else None


_DRIVERS = {
    Platform.LINUX: DriverPlatform.LINUX,
    Platform.WSL: DriverPlatform.WINDOWS,
    Platform.WINDOWS: DriverPlatform.WINDOWS,
}
_LINUX = {
    "x86_64": WheelPlatform.LINUX_X86_64,
    "amd64": WheelPlatform.LINUX_X86_64,
    "aarch64": WheelPlatform.LINUX_AARCH64,
    "arm64": WheelPlatform.LINUX_AARCH64,
}
