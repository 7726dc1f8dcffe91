"""What findings rest on: errors seen, variables and cuInit's answer, as evidence."""

from __future__ import annotations

from cudadoctor.model.fact import Known
from cudadoctor.model.finding import Evidence
from cudadoctor.model.snapshot import ApiStatus, ErrorSeen
from cudadoctor.rules.engine import Case, evidence


def status_words(status: ApiStatus) -> str:
    """`999 CUDA_ERROR_UNKNOWN unknown error`."""
    return " ".join(part for part in (str(status.code), status.name, status.message) if part)


def cu_init_evidence(case: Case) -> tuple[Evidence, ...]:
    """What cuInit answered, as evidence; nothing where it did not fail."""
    fact = case.snapshot.driver.cu_init
    if isinstance(fact, Known) and fact.value.code != 0:
        return (Evidence(fact="driver.cu_init", value=status_words(fact.value), source=fact.source, line=fact.line),)
    return ()


def as_evidence(errors: tuple[ErrorSeen, ...], limit: int = 3) -> tuple[Evidence, ...]:
    """Texts as evidence, quoted; the first few."""
    return tuple(
        Evidence(fact=f"errors.{error.kind}", value=error.text, source=error.source, line=error.line) for error in errors[:limit]
    )


def variable_evidence(variable: str, value: str) -> tuple[Evidence, ...]:
    """An environment variable's value as evidence."""
    return (Evidence(fact=f"environment.{variable}", value=repr(value), source="environment"),)


def cu_init_is(case: Case, code: int) -> tuple[Evidence, ...]:
    """The evidence that cuInit answered this code; nothing where it answered another or none."""
    status = case.snapshot.driver.cu_init
    if isinstance(status, Known) and status.value.code == code:
        return evidence("driver.cu_init", status, value=status_words(status.value))
    return ()


def seen(case: Case, *kinds: str) -> tuple[Evidence, ...]:
    """All errors of these kinds as evidence, quoted."""
    errors = case.errors(*kinds)
    return as_evidence(errors, len(errors))
