"""All faults, by kind."""

from __future__ import annotations

from tests.real_faults import devices, libraries, programs, settings, toolkits
from tests.real_faults.fault import Fault

FAULTS: tuple[Fault, ...] = (*devices.FAULTS, *toolkits.FAULTS, *libraries.FAULTS, *settings.FAULTS, *programs.FAULTS)
