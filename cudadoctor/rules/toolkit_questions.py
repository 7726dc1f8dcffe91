"""Questions about toolkits that several rules ask: which one builds take, what it is, whether it has been seen to work."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from cudadoctor.model.fact import Fact, Known, known, maybe
from cudadoctor.model.finding import Evidence, Severity
from cudadoctor.model.proof import ProofLayer, ProofOutcome
from cudadoctor.model.snapshot import ErrorSeen, HostCompiler, Snapshot, Toolkit
from cudadoctor.model.versions import ComputeCapability, CudaVersion, VersionError
from cudadoctor.rules.engine import Case, NotApplicableError, evidence
from cudadoctor.rules.questions import chosen_toolkit, environment, toolkit_targets

ONLY_WHEN_COMPILING = "Matters only when something is compiled here."
HOME_VARIABLES = ("CUDA_HOME", "CUDA_PATH")
"""In the order in which torch.utils.cpp_extension asks them."""


def build_toolkit(snapshot: Snapshot) -> Toolkit | None:
    """The toolkit that builds would take; of a text that shows one toolkit only, that one."""
    chosen = chosen_toolkit(snapshot)
    if chosen is not None:
        return chosen
    kits = maybe(snapshot.toolkits) or ()
    seen_by_probe = any(kit.found_by for kit in kits)
    return kits[0] if len(kits) == 1 and not seen_by_probe else None


def nvcc_version(snapshot: Snapshot) -> CudaVersion | None:
    """The version of the nvcc that builds would take, where it is known."""
    kit = build_toolkit(snapshot)
    return maybe(kit.toolkit_version) if kit is not None and "nvcc" not in kit.missing_parts else None


def toolkits_with_nvcc(snapshot: Snapshot) -> tuple[Toolkit, ...]:
    """The toolkits that have a compiler."""
    kits = maybe(snapshot.toolkits) or ()
    return tuple(kit for kit in kits if isinstance(kit.nvcc, Known) or _version_from_nvcc(kit))


def _version_from_nvcc(kit: Toolkit) -> bool:
    """In a pasted text the printed version is all that shows a compiler; a probe says apart that there is none."""
    return isinstance(kit.toolkit_version, Known) and "nvcc" not in kit.missing_parts


def chosen(case: Case) -> tuple[Toolkit, CudaVersion]:
    """The toolkit that builds would take, and its version; ends the rule where there is none."""
    kits = known(case.snapshot.toolkits)
    kit = build_toolkit(case.snapshot)
    if kit is None:
        raise NotApplicableError("no toolkit is installed" if not kits else "no nvcc would be chosen for builds")
    if "nvcc" in kit.missing_parts:
        raise NotApplicableError(f"{kit.root} holds libraries only, no nvcc")
    return kit, known(kit.toolkit_version)


def title(kit: Toolkit) -> str:
    """`nvcc 12.6`, or the folder where the version is unknown."""
    version = maybe(kit.toolkit_version)
    return f"nvcc {version.release}" if version is not None else f"the toolkit in {kit.root}"


def place(kit: Toolkit) -> str:
    """Where a toolkit lies, as people know it: by an alias such as /usr/local/cuda, else its folder."""
    nvcc = maybe(kit.nvcc)
    return kit.root or (nvcc.rpartition("/bin/")[0] if nvcc else "")


def version_evidence(kit: Toolkit | None) -> tuple[Evidence, ...]:
    """The toolkit's version as evidence; nothing where there is none."""
    return evidence("toolkits.toolkit_version", kit.toolkit_version) if kit is not None else ()


def compiles_here(case: Case) -> bool:
    """Has nvcc been seen to compile on this machine? Then no circumstance of its installation is a fault."""
    layers = (ProofLayer.NVCC, ProofLayer.TORCH_EXTENSION)
    return any(proof.layer in layers and proof.outcome is ProofOutcome.PASSED for proof in case.proofs)


def compiling_fault(case: Case) -> Severity:
    """How bad a fault of the installed compilers is: an error where kernels fail for no other reason than that nvcc made no code.

    Else a warning: it matters only when something is compiled.
    """
    failed = [proof for proof in case.proofs if proof.outcome is ProofOutcome.FAILED]
    without_code = [proof for proof in failed if proof.layer is ProofLayer.NVCC and proof.target is None]
    return Severity.ERROR if failed and without_code == failed else Severity.WARNING


def home_variable(snapshot: Snapshot) -> tuple[str, str] | None:
    """The variable that names the toolkit and its value: CUDA_HOME, else CUDA_PATH; None where neither is set."""
    values = environment(snapshot)
    return next(((name, values[name]) for name in HOME_VARIABLES if values.get(name)), None)


def home_evidence(snapshot: Snapshot) -> tuple[Evidence, ...]:
    """The variable that names the toolkit, as evidence."""
    named = home_variable(snapshot)
    return variable_evidence(snapshot, named[0]) if named is not None else ()


def variable_evidence(snapshot: Snapshot, name: str) -> tuple[Evidence, ...]:
    """An environment variable as evidence; nothing where it is not set."""
    fact = snapshot.environment
    if isinstance(fact, Known) and name in fact.value:
        return (Evidence(fact=f"environment.{name}", value=repr(fact.value[name]), source=fact.source or "environment"),)
    return ()


def looked_for_toolkits(snapshot: Snapshot) -> bool:
    """Did the toolkit probe search this machine? A pasted text shows some toolkits, never that there is no other."""
    kits = maybe(snapshot.toolkits)
    return kits is not None and all(kit.found_by for kit in kits)


def capability_of(text: str) -> ComputeCapability | None:
    """The compute capability that `compute_120`, `sm_90a`, `8.9+PTX` or `12.0` names; None where it names none."""
    try:
        return ComputeCapability.parse(text.strip().lower().partition("+")[0].rstrip("af"))
    except VersionError:
        return None


def can_target(case: Case, kit: Toolkit, capability: ComputeCapability) -> bool | None:
    """Whether a toolkit compiles for exactly this capability; None where neither it nor the matrix says."""
    targets: Fact[tuple[object, ...]] = toolkit_targets(kit, case.matrices)
    return any(target == capability.sm for target in targets.value) if isinstance(targets, Known) else None


def nvccs_compiler(snapshot: Snapshot) -> HostCompiler | None:
    """The C++ compiler that nvcc would take: the first that something chooses (CUDAHOSTCXX is CMake's alone)."""
    compilers = maybe(snapshot.host_compilers) or ()
    return next((one for one in compilers if one.chosen_by and one.chosen_by != "CUDAHOSTCXX"), None)


def with_variable(snapshot: Snapshot, name: str, value: str | None) -> Snapshot:
    """The snapshot as it would be with an environment variable set, or unset (None); error texts of before are gone."""
    values = {key: text for key, text in environment(snapshot).items() if key != name}
    if value is not None:
        values[name] = value
    return structs.replace(snapshot, environment=Known(values, "after the fix"), errors=())


def quoted(errors: Iterable[ErrorSeen]) -> tuple[Evidence, ...]:
    """Error texts as evidence."""
    return tuple(Evidence(fact=f"errors.{one.kind}", value=one.text, source=one.source, line=one.line) for one in errors)
