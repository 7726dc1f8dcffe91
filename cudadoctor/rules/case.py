"""What a rule may look at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, TypeVar

from cudadoctor.matrices import Matrices
from cudadoctor.model.proof import Proof
from cudadoctor.model.snapshot import ErrorSeen, Snapshot
from cudadoctor.requirements import Requirement
from cudadoctor.rules.presence import Presence, nvidia_gpu_present

T = TypeVar("T")


@dataclass(frozen=True)
class BrokenPlugin:
    """An entry point that should offer rules and does not: its name, its package, why, and the Python that it is installed in."""

    name: str
    package: str
    version: str
    because: str
    python: str


@dataclass(frozen=True)
class Case:
    """All that a rule may look at: the snapshot, the proofs, the matrices."""

    snapshot: Snapshot
    matrices: Matrices
    proofs: tuple[Proof, ...] = ()
    requirements: tuple[Requirement, ...] = ()
    """What the user demands of the machine (`--require`)."""
    broken_plugins: tuple[BrokenPlugin, ...] = ()
    """Packages whose rules could not judge."""

    @cached_property
    def _errors(self) -> dict[str, tuple[ErrorSeen, ...]]:
        kinds: dict[str, tuple[ErrorSeen, ...]] = {}
        for error in self.snapshot.errors:
            kinds[error.kind] = (*kinds.get(error.kind, ()), error)
        return kinds

    @cached_property
    def gpu_presence(self) -> Presence:
        """Is there an NVIDIA GPU in this machine, whether or not it works?"""
        return nvidia_gpu_present(self.snapshot)

    @property
    def has_no_gpu(self) -> bool:
        """Is this machine known to have no NVIDIA GPU?"""
        return self.gpu_presence is Presence.NO

    @cached_property
    def answers(self) -> dict[Callable[[Case], Any], Any]:
        """What functions that are decorated `once_a_case` answered so far."""
        return {}

    def errors(self, *kinds: str) -> tuple[ErrorSeen, ...]:
        """The errors seen of any of these kinds, in the order of the kinds named."""
        seen = self._errors
        if seen.keys().isdisjoint(kinds):
            return ()
        return tuple(error for kind in kinds for error in seen.get(kind, ()))

    def saw(self, *kinds: str) -> bool:
        """Was an error of any of these kinds seen?"""
        return not self._errors.keys().isdisjoint(kinds)


def once_a_case(question: Callable[[Case], T]) -> Callable[[Case], T]:
    """The question, answered once for each case: many rules ask the same."""

    @wraps(question)
    def remembered(case: Case) -> T:
        answers = case.answers
        if question not in answers:
            answers[question] = question(case)
        answer: T = answers[question]
        return answer

    return remembered
