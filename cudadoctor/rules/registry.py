"""All rules, in the order of their codes. A rule is added by a line in its module's RULES."""

from cudadoctor.rules import driver, environment, frameworks, kernels, toolkit
from cudadoctor.rules.engine import Rule

RULES: tuple[Rule, ...] = (
    *driver.RULES,
    *toolkit.RULES,
    *frameworks.RULES,
    *environment.RULES,
    *kernels.RULES,
)
