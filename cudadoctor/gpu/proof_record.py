"""What is known of a proof before it is run, and the proofs that can come of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from cudadoctor.model.proof import ApiError, Proof, ProofLayer, ProofOutcome

FIGURES = ("max_error", "tolerance", "run_ms", "tflops", "gb_s")


@dataclass(frozen=True, slots=True)
class ProofRecord:
    """Layer, GPU and kernel of a proof; target and compiler once they are known."""

    layer: ProofLayer
    gpu: int | None
    kernel: str
    target: str | None = None
    compiler: str | None = None
    compile_s: float | None = None
    peer: int | None = None

    def compiled(self, kernel: str, target: str, compile_s: float | None) -> ProofRecord:
        """The same with the code that was made for it, or for the kernel that runs in its place."""
        return replace(self, kernel=kernel, target=target, compile_s=compile_s)

    def ended(self, outcome: ProofOutcome, because: str, error: ApiError | None = None) -> Proof:
        """The proof that ended before the GPU gave any numbers."""
        return self._proof(outcome, because=because, error=error)

    def answered(self, answer: Mapping[str, Any]) -> Proof:
        """The proof as the driver child answered it."""
        record = replace(self, compile_s=answer.get("load_s")) if self.layer is ProofLayer.DRIVER_JIT else self
        error = msgspec.convert(answer["error"], ApiError) if answer.get("error") else None
        figures = {name: answer[name] for name in FIGURES if answer.get(name) is not None}
        return record._proof(ProofOutcome(answer["outcome"]), because=answer.get("because"), error=error, **figures)

    def _proof(self, outcome: ProofOutcome, *, because: str | None, error: ApiError | None, **figures: float) -> Proof:
        return Proof(
            layer=self.layer,
            gpu=self.gpu,
            kernel=self.kernel,
            target=self.target,
            outcome=outcome,
            error=error,
            because=because,
            compile_s=self.compile_s,
            compiler=self.compiler,
            peer=self.peer,
            **figures,
        )
