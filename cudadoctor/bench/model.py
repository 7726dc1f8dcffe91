"""What a bench measured and concluded: one JSON document, read back by `--against` and `--judge`.

Times in milliseconds, clocks in MHz, power in W, temperatures in C, sizes in bytes.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from enum import Enum

import msgspec

from cudadoctor.model.finding import Finding
from cudadoctor.model.report import Tool
from cudadoctor.model.versions import ComputeCapability

SCHEMA = "cudadoctor.bench/1"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the parts: immutable, fields by name."""


class Section(Enum):
    """What can be measured."""

    GEMM = "gemm"
    ATTENTION = "attention"
    MEMORY = "memory"


class Timing(Record, frozen=True):
    """Milliseconds of one launch: median, 10th and 90th percentile of some launches."""

    median: float
    low: float
    high: float
    launches: int

    @classmethod
    def of(cls, milliseconds: Sequence[float]) -> Timing:
        """The timing of at least one launch."""
        ordered = sorted(milliseconds)
        tenth = statistics.quantiles(ordered, n=10, method="inclusive") if len(ordered) > 1 else ordered * 9
        return cls(median=statistics.median(ordered), low=tenth[0], high=tenth[-1], launches=len(ordered))

    @property
    def spread(self) -> float:
        """10th to 90th percentile over the median."""
        return (self.high - self.low) / self.median if self.median > 0 else float("inf")


class Reference(Record, frozen=True):
    """The library's time for the same problem."""

    name: str
    timing: Timing


class Row(Record, frozen=True):
    """One kernel or copy with one problem."""

    section: Section
    kernel: str
    problem: str
    timing: Timing | None = None
    because: str = ""
    """Why there is no time."""
    wrong: bool = False
    """True where it ran and its result is wrong."""
    dtype: str = ""
    tensor_cores: bool = False
    flops: float = 0.0
    bytes_moved: int = 0
    """The least that the problem must move."""
    clock_mhz: float | None = None
    """SM clock under this load: cycles over nanoseconds on the GPU."""
    occupancy: float | None = None
    occupancy_limit: str = ""
    reference: Reference | None = None

    @property
    def key(self) -> tuple[str, str]:
        return (self.kernel, self.problem)

    @property
    def _timed(self) -> bool:
        """Is there a time to divide by? A document may say anything."""
        return self.timing is not None and self.timing.median > 0

    @property
    def tflops(self) -> float | None:
        return self.flops / self.timing.median * 1e-9 if self._timed and self.timing and self.flops else None

    @property
    def gb_s(self) -> float | None:
        return self.bytes_moved / self.timing.median * 1e-6 if self._timed and self.timing and self.bytes_moved else None

    @property
    def ratio(self) -> float | None:
        """Time of the library over that of the kernel."""
        return self.reference.timing.median / self.timing.median if self._timed and self.timing and self.reference else None


class Phase(Enum):
    """What was going on when NVML was asked."""

    IDLE = "idle"
    """Before anything of ours ran on the GPU."""
    STARTING = "starting"
    MEASURING = "measuring"


class Sample(Record, frozen=True):
    """What NVML said at one moment; None for what it did not say."""

    at: float
    """Seconds since the first sample."""
    phase: Phase = Phase.MEASURING
    sm_clock_mhz: int | None = None
    power_w: float | None = None
    temperature_c: int | None = None
    throttle_reasons: tuple[str, ...] | None = None
    utilization_percent: int | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    others: int | None = None
    """Other processes that compute on this GPU, as far as NVML shows them."""


class BenchGpu(Record, frozen=True):
    """The GPU as it was found."""

    index: int = 0
    name: str = ""
    pci_bus_id: str = ""
    pci_device: str = ""
    compute_capability: ComputeCapability | None = None
    multiprocessors: int | None = None
    memory_total: int | None = None
    memory_free: int | None = None
    driver_release: str = ""
    sm_clock_max_mhz: int | None = None
    power_limit_w: float | None = None
    power_limit_default_w: float | None = None
    ecc: bool | None = None
    mig: bool = False
    pcie_generation_max: int | None = None
    pcie_width_max: int | None = None


class Outcome(Enum):
    """Whether the GPU performs as it should."""

    AS_EXPECTED = "as-expected"
    SLOW = "slow"
    WRONG = "wrong-results"
    UNDETERMINED = "undetermined"


class Comparison(Record, frozen=True):
    """One figure beside what is expected of it."""

    figure: str
    value: float
    low: float
    high: float
    unit: str
    basis: str
    """Where the expected range comes from."""
    measured_model: bool
    """True where it was measured on this model, False where it is a share of the rated peak."""
    below: bool
    """True where even the fast end of the measured spread is below the range."""


class Verdict(Record, frozen=True):
    """The judgement and its reasons, the likeliest first."""

    outcome: Outcome
    sentence: str
    comparisons: tuple[Comparison, ...] = ()
    reasons: tuple[Finding, ...] = ()
    remarks: tuple[str, ...] = ()


class KernelProfile(Record, frozen=True):
    """What Nsight Compute counted for one kernel, and what follows."""

    kernel: str
    metrics: dict[str, float] = {}
    bound: str = ""
    change: str = ""


class Profile(Record, frozen=True):
    """What Nsight Compute said, or why it did not."""

    kernels: tuple[KernelProfile, ...] = ()
    because: str = ""
    findings: tuple[Finding, ...] = ()


LEAST_CHANGE = 0.005
"""Changes of a median below this share are not named, however quiet both runs were: GPUs of one model differ by more."""


class Change(Record, frozen=True):
    """One kernel with one problem in two runs. Positive is faster now."""

    kernel: str
    problem: str
    faster: float
    """Old time over new time, minus one."""
    noise: float
    """The spreads of both runs, combined: below it a difference means nothing."""

    @property
    def counts(self) -> bool:
        return abs(self.faster) > max(self.noise, LEAST_CHANGE)


class BenchReport(msgspec.Struct, frozen=True, kw_only=True):
    """The whole document."""

    schema: str = SCHEMA
    tool: Tool
    created: str
    seconds: float
    gpu: BenchGpu
    torch: str = ""
    """Version of the torch whose library calls are the references."""
    rows: tuple[Row, ...] = ()
    samples: tuple[Sample, ...] = ()
    verdict: Verdict | None = None
    profile: Profile | None = None
    against: tuple[Change, ...] | None = None
    """What changed since the run that was named by --against."""
