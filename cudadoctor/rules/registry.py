"""All rules, in the order of their codes. A rule is added by a line in its module's RULES."""

from cudadoctor.rules import (
    building,
    containers,
    cudnn,
    driver,
    driver_access,
    environment,
    frameworks,
    host_compilers,
    kernel_module,
    kernels,
    libraries,
    platforms,
    requirements,
    toolkit,
    toolkit_fit,
    toolkit_parts,
    wsl,
)
from cudadoctor.rules.engine import Rule

RULES: tuple[Rule, ...] = (
    *driver.RULES,
    *kernel_module.RULES,
    *driver_access.RULES,
    *platforms.RULES,
    *toolkit.RULES,
    *toolkit_parts.RULES,
    *toolkit_fit.RULES,
    *host_compilers.RULES,
    *building.RULES,
    *libraries.RULES,
    *cudnn.RULES,
    *frameworks.RULES,
    *containers.RULES,
    *wsl.RULES,
    *environment.RULES,
    *kernels.RULES,
    *requirements.RULES,
)
