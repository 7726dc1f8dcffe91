"""Copies between every two GPUs, in both directions, one after the other so that each has the links for itself."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from time import monotonic

from cudadoctor.gpu.child import ChildError, ChildFailure
from cudadoctor.gpu.copy_names import DIRECT
from cudadoctor.gpu.description import DeviceDescription
from cudadoctor.gpu.driver_session import DriverSession
from cudadoctor.gpu.proof_record import ProofRecord
from cudadoctor.model.proof import Proof, ProofLayer, ProofOutcome

COPY_LIMIT_S = 5.0
"""Longest time for a copy, the making of both contexts included."""
PATIENCE = 2
"""Hangs after which a GPU is left out: what is left of the time belongs to the others."""

Pair = tuple[int, int]
"""Source and target, as CUDA counts devices."""


def whole_devices(devices: Sequence[DeviceDescription]) -> tuple[DeviceDescription, ...]:
    """The devices that can be peers: CUDA gives MIG slices no access to each other."""
    return tuple(device for device in devices if not device.is_mig)


def not_applicable(layer: ProofLayer, because: str) -> Proof:
    """The one proof of a layer for several GPUs where there are not several."""
    return ProofRecord(layer, None, "all").ended(ProofOutcome.SKIPPED, f"not applicable: {because}")


class PeerRun:
    """The copies of a machine under way; `abandon` ends them from another thread."""

    def __init__(
        self, devices: Sequence[DeviceDescription], numbers: Mapping[int, int], session: DriverSession, deadline: float
    ) -> None:
        """`numbers` maps CUDA's index of a device to the report's; `deadline` is one of time.monotonic()."""
        self._devices = whole_devices(devices)
        self._numbers = numbers
        self._session = session
        self._deadline = deadline
        self._hung: Counter[int] = Counter()
        self._given_up = ""

    def run(self) -> tuple[Proof, ...]:
        """One proof for each ordered pair of GPUs, sorted; one that says why where there are no pairs."""
        if len(self._devices) < 2:
            visible = "one GPU is visible" if self._devices else "no whole GPU is visible"
            return (not_applicable(ProofLayer.PEER, f"copies between GPUs need two, and {visible}"),)
        with self._session:
            proofs = list(self._proofs())
        return tuple(sorted(proofs, key=lambda proof: (proof.gpu or 0, proof.peer or 0)))

    def abandon(self) -> None:
        """End the copy under way, and begin no other."""
        self._given_up = "interrupted"
        self._session.kill()

    def _proofs(self) -> Iterator[Proof]:
        """Pairs with a GPU that hung come last, so that a sick one costs the others no time."""
        waiting = list(permutations((device.index for device in self._devices), 2))
        while waiting:
            pair = min(waiting, key=lambda each: self._hung[each[0]] + self._hung[each[1]])
            waiting.remove(pair)
            yield self._prove(pair)

    def _prove(self, pair: Pair) -> Proof:
        source, target = (self._numbers.get(index, index) for index in pair)
        record = ProofRecord(ProofLayer.PEER, source, DIRECT, peer=target)
        limit = min(COPY_LIMIT_S, self._deadline - monotonic())
        reason = self._given_up or self._suspect(pair) or ("the time was over" if limit <= 0 else "")
        if reason:
            return record.ended(ProofOutcome.UNKNOWN, f"not tried: {reason}")
        try:
            answer = self._session.copy(*pair, secrets.randbits(31), limit)
        except ChildError as error:
            because = f"the process that ran it {error}"
            if error.failure is ChildFailure.CRASHED and not self._given_up:
                return record.ended(ProofOutcome.FAILED, because)
            self._hung.update(pair)
            return record.ended(ProofOutcome.UNKNOWN, because)
        return replace(record, kernel=answer.get("kernel", DIRECT)).answered(answer)

    def _suspect(self, pair: Pair) -> str:
        """Why copies of this pair are not tried any more; empty where they are."""
        sick = [self._numbers.get(index, index) for index in pair if self._hung[index] >= PATIENCE]
        return f"copies with GPU {sick[0]} hung before" if sick else ""
