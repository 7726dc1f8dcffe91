"""All rules, in the order of their codes. A rule is added by a line in its module's RULES."""

from cudadoctor.rules import (
    containers,
    driver,
    driver_access,
    environment,
    frameworks,
    kernel_module,
    kernels,
    platforms,
    toolkit,
    wsl,
)
from cudadoctor.rules.engine import Rule

RULES: tuple[Rule, ...] = (
    *driver.RULES,
    *kernel_module.RULES,
    *driver_access.RULES,
    *platforms.RULES,
    *toolkit.RULES,
    *frameworks.RULES,
    *containers.RULES,
    *wsl.RULES,
    *environment.RULES,
    *kernels.RULES,
)
