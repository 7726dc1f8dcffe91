"""What a rule may look at."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from cudadoctor.matrices import Matrices
from cudadoctor.model.proof import Proof
from cudadoctor.model.snapshot import ErrorSeen, Snapshot
from cudadoctor.requirements import Requirement
from cudadoctor.rules.presence import Presence, nvidia_gpu_present


@dataclass(frozen=True)
class Case:
    """All that a rule may look at: the snapshot, the proofs, the matrices."""

    snapshot: Snapshot
    matrices: Matrices
    proofs: tuple[Proof, ...] = ()
    requirements: tuple[Requirement, ...] = ()
    """What the user demands of the machine (`--require`)."""

    @cached_property
    def _errors(self) -> dict[str, tuple[ErrorSeen, ...]]:
        kinds: dict[str, tuple[ErrorSeen, ...]] = {}
        for error in self.snapshot.errors:
            kinds[error.kind] = (*kinds.get(error.kind, ()), error)
        return kinds

    @cached_property
    def has_no_gpu(self) -> bool:
        """Is this machine known to have no NVIDIA GPU?"""
        return nvidia_gpu_present(self.snapshot) is Presence.NO

    def errors(self, *kinds: str) -> tuple[ErrorSeen, ...]:
        """The errors seen of any of these kinds, in the order of the kinds named."""
        seen = self._errors
        if seen.keys().isdisjoint(kinds):
            return ()
        return tuple(error for kind in kinds for error in seen.get(kind, ()))

    def saw(self, *kinds: str) -> bool:
        """Was an error of any of these kinds seen?"""
        return not self._errors.keys().isdisjoint(kinds)
