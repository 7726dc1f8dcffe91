"""Rules about containers: was the GPU given to them, and do they find the driver's files (CD6xx)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from cudadoctor.matrices.platforms import DriverPlatform
from cudadoctor.model.fact import Known, Missing, MissingReason, known, maybe
from cudadoctor.model.finding import Confidence, Evidence, Fix, Severity, Where
from cudadoctor.model.snapshot import ErrorSeen, LibraryCopy, LibraryOrigin
from cudadoctor.rules import driver_fixes, fixes
from cudadoctor.rules.circumstances import (
    NO_DRIVER_IN_REACH,
    as_evidence,
    container_shown,
    cu_init_evidence,
    cuda_fails,
    started_with_gpu,
    started_without_gpu,
    variable_evidence,
    variables,
)
from cudadoctor.rules.driver import CUDA_ERROR_UNKNOWN, seen
from cudadoctor.rules.driver_access import NOT_PERMITTED
from cudadoctor.rules.engine import Case, NotApplicableError, Problem, Remedy, Rule, evidence
from cudadoctor.rules.questions import NVIDIA_VENDOR, driver_platform, driver_works, in_container, pci_gpus

TOOLKIT_GUIDE = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/troubleshooting.html"
CAPABILITIES = "NVIDIA_DRIVER_CAPABILITIES"
NO_LIBCUDA = ("libcuda-load-failed", "torch-no-nvidia-driver")
GIVEN_DEVICES = "NVIDIA_VISIBLE_DEVICES"
DEFAULT_CAPABILITIES = frozenset({"compute", "utility"})
"""What the container runtime mounts where the variable is not set (NVIDIA Container Toolkit documentation)."""
NEEDED_CAPABILITY = (
    ("encode", "video"),
    ("nvenc", "video"),
    ("nvcuvid", "video"),
    ("opticalflow", "video"),
    ("nvoptix", "graphics"),
    ("glx", "graphics"),
    ("egl", "graphics"),
    ("glcore", "graphics"),
    ("vulkan", "graphics"),
    ("fbc", "video"),
    ("nvidia-ml", "utility"),
    ("nvml", "utility"),
    ("ptxjit", "compute"),
    ("libcuda", "compute"),
)
"""Part of a library's name or message and the capability that mounts it (NVIDIA Container Toolkit documentation)."""
MOUNT_FOLDERS = (
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/run/opengl-driver/lib",
    "/opt/nvidia/lib64",
    "/home/kubernetes/bin/nvidia/lib64",
)
"""Where platforms mount the driver's libraries outside the loader's default folders."""


def _in_some_container(case: Case) -> None:
    """Ends the rule where this is no container and no text is about one."""
    if not container_shown(case):
        known(case.snapshot.container.kind)
        raise NotApplicableError("not a container")


def container_toolkit_missing(case: Case) -> Iterable[Problem]:
    """Docker has no NVIDIA runtime: the NVIDIA Container Toolkit is not installed or not registered with it.

    What it checks: the engine's errors ("could not select device driver", "unknown runtime specified nvidia"); on a host with
    Docker, whether the toolkit's programs exist.

    Why it matters: the engine by itself does not know GPUs; the toolkit mounts the driver's files and device nodes.

    How to fix: install the toolkit, register it with the engine, restart the engine.

    When it is wrong: Docker from the snap package ignores the host's toolkit; docker-snap then names the cause. Docker Desktop
    brings its own.

    Sources: NVIDIA Container Toolkit installation guide.
    """
    texts = seen(case, "container-no-gpu-driver")
    if texts:
        yield Problem(
            subject="container engine",
            what="The container engine has no NVIDIA runtime: the NVIDIA Container Toolkit is not installed or not registered with it.",
            why="The engine itself knows no GPUs; the toolkit adds the driver's files and device nodes to the container.",
            evidence=texts,
            remedies=driver_fixes.install_container_toolkit(case),
            references=(TOOLKIT_GUIDE,),
        )
        return
    container = case.snapshot.container
    if isinstance(container.docker_snap, Missing):
        known(container.docker_snap)
    if isinstance(container.nvidia_toolkit, Missing) and container.nvidia_toolkit.reason is MissingReason.NOT_FOUND:
        if not driver_works(case.snapshot):
            return
        yield Problem(
            subject="container engine",
            what="Docker is installed without the NVIDIA Container Toolkit: its containers get no GPU.",
            why="Matters only for containers that are to use the GPU.",
            evidence=_toolkit_absent(container.nvidia_toolkit),
            remedies=driver_fixes.install_container_toolkit(case),
            severity=Severity.NOTE,
        )


def _toolkit_absent(missing: Missing) -> tuple[Evidence, ...]:
    return (Evidence(fact="container.nvidia_toolkit", value=missing.detail or "not found", source=missing.source or "PATH"),)


def docker_snap(case: Case) -> Iterable[Problem]:
    """Docker comes from the snap package, which does not use the host's NVIDIA runtime.

    What it checks: where the docker program lies; snapd's words in a text.

    Why it matters: the snap is confined: it neither reads the host's configuration nor runs the host's runtime hook, so --gpus
    fails although the toolkit is installed.

    How to fix: remove the snap and install Docker from docker.com or the distribution; then register the toolkit.

    When it is wrong: newer snaps bring an NVIDIA part of their own; where containers do get the GPU, this is a remark.

    Sources: snapcraft.io, the docker snap; NVIDIA Container Toolkit troubleshooting.
    """
    texts = seen(case, "docker-snap")
    fact = case.snapshot.container.docker_snap
    if not texts and not known(fact):
        return
    fails = case.saw("container-no-gpu-driver", "container-cli-failed", "nvml-unknown-error", "cdi-spec-missing")
    yield Problem(
        subject="container engine",
        what="Docker comes from the snap package, which does not use the host's NVIDIA runtime.",
        why="The snap is confined: it does not see the host's NVIDIA Container Toolkit, so --gpus fails."
        if fails
        else "Matters only for containers that are to use the GPU.",
        evidence=(*texts, *evidence("container.docker_snap", fact, value="snap")),
        severity=Severity.ERROR if fails else Severity.NOTE,
        remedies=(
            driver_fixes.as_root(
                "Replace the snap by Docker's own package, then register the toolkit",
                "sudo snap remove docker",
                "sudo apt-get install docker.io",
                "sudo nvidia-ctk runtime configure --runtime=docker",
                "sudo systemctl restart docker",
                verify=("docker run --rm --gpus all ubuntu nvidia-smi",),
            ),
        ),
    )


def container_gpus_flag_missing(case: Case) -> Iterable[Problem]:
    """The container was started without the GPU.

    What it checks: in a container, that neither device nodes nor driver libraries were passed in while the host's driver shows;
    in a text, a command line without --gpus (or its like) together with an error that says that no driver is in reach.

    Why it matters: the driver's libraries and the GPU's device nodes are added at start only. Nothing that is installed inside
    the image can replace them.

    How to fix: start the container with --gpus all (Docker), --device nvidia.com/gpu=all (Podman), --nv (Apptainer), or a GPU
    request (Kubernetes). An image build has no GPU at all.

    When it is wrong: where the command line asks for the GPU, the runtime or the driver is at fault; that has other findings.

    Sources: docker run reference; NVIDIA Container Toolkit documentation.
    """
    if driver_works(case.snapshot):
        return
    runs = started_without_gpu(case)
    errors = case.errors(*NO_DRIVER_IN_REACH)
    warned = case.errors("container-no-gpu-warning")
    if runs and errors:
        yield _started_without((*as_evidence(runs, 1), *as_evidence(errors)), Confidence.CERTAIN)
    elif warned and not started_with_gpu(case):
        yield _started_without(as_evidence(warned), Confidence.LIKELY)
    elif in_container(case.snapshot):
        yield from _nothing_passed_in(case)
    elif container_shown(case) and case.saw(*NO_LIBCUDA) and not started_with_gpu(case):
        if not case.saw("shown-mounted-driver-libraries", "container-no-gpu-driver", "container-cli-failed"):
            texts = as_evidence((*case.errors(*NO_LIBCUDA), *case.errors("shown-container")[:1]))
            yield replace(_started_without(texts, Confidence.POSSIBLE), severity=Severity.WARNING)
    else:
        known(case.snapshot.container.kind)


def _started_without(texts: tuple[Evidence, ...], confidence: Confidence) -> Problem:
    return Problem(
        subject="container",
        what="The container was started without the GPU.",
        why="The driver's libraries and the GPU's device nodes are added when a container starts; the image cannot bring them.",
        evidence=texts,
        remedies=driver_fixes.start_with_gpu(),
        confidence=confidence,
    )


def _nothing_passed_in(case: Case) -> Iterable[Problem]:
    """The problem where the host has a GPU and this container got nothing of it."""
    driver, container = case.snapshot.driver, case.snapshot.container
    nodes = [node for node in known(driver.device_nodes) if node.path.startswith(("/dev/nvidia", "/dev/dxg"))]
    copies = [copy for copy in maybe(driver.libcuda_copies) or () if copy.origin in (LibraryOrigin.DRIVER, LibraryOrigin.WSL)]
    injected = maybe(container.injected_libraries)
    if nodes or copies or injected:
        return
    host_gpus = pci_gpus(case.snapshot, NVIDIA_VENDOR)
    if not host_gpus and not isinstance(driver.kernel_module, Known):
        known(driver.kernel_module)
        return
    proof = (
        Evidence(fact="driver.device_nodes", value="no /dev/nvidia* in this container", source="/dev"),
        *evidence("driver.driver_release", driver.driver_release),
        *(
            Evidence(fact="driver.pci_devices", value=f"{device.bus_id} 10de:{device.device_id}", source="sysfs")
            for device in host_gpus[:2]
        ),
    )
    yield _started_without(proof, Confidence.CERTAIN)


def container_visible_devices_none(case: Case) -> Iterable[Problem]:
    """NVIDIA_VISIBLE_DEVICES tells the container runtime to pass no GPU into this container.

    What it checks: the values none, void and empty in a container that has no GPU.

    Why it matters: the runtime obeys: with void it adds nothing, with none the driver's libraries but no GPU.

    How to fix: start the container with NVIDIA_VISIBLE_DEVICES=all or a list of GPUs, or with --gpus.

    When it is wrong: with CDI the runtime sets void itself and passes the GPU in another way; the rule speaks only where CUDA
    does not work.

    Sources: NVIDIA Container Toolkit documentation, environment variables.
    """
    value = known(case.snapshot.environment).get(GIVEN_DEVICES)
    if value is None or value.strip().lower() not in ("none", "void", ""):
        return
    if not in_container(case.snapshot):
        raise NotApplicableError("the variable is read by container runtimes only")
    nodes = [node for node in maybe(case.snapshot.driver.device_nodes) or () if node.path.startswith("/dev/nvidia")]
    if driver_works(case.snapshot) or nodes:
        return
    yield Problem(
        subject=GIVEN_DEVICES,
        what=f"{GIVEN_DEVICES}={value!r} tells the container runtime to pass no GPU into this container.",
        why="The runtime adds device nodes and driver libraries only for the GPUs named there.",
        evidence=variable_evidence(GIVEN_DEVICES, value),
        remedies=(
            Remedy(
                Fix(title="Start the container with the GPUs wanted", commands=("docker run --gpus all IMAGE",), where=Where.HOST)
            ),
        ),
    )


def container_require_unsatisfied(case: Case) -> Iterable[Problem]:
    """The image asks for a newer driver than the host has (NVIDIA_REQUIRE_CUDA), so the container is not started.

    What it checks: the runtime's "requirement error: unsatisfied condition".

    Why it matters: CUDA images name the CUDA version that they need. Within a CUDA major the programs in it might run on the
    older driver all the same (minor-version compatibility), but PTX and new features would not.

    How to fix: use an image of a CUDA version that the driver serves, or update the host's driver. NVIDIA_DISABLE_REQUIRE=1
    skips the check, at one's own risk.

    When it is wrong: never seen; the runtime names condition and driver.

    Sources: NVIDIA Container Toolkit documentation, NVIDIA_REQUIRE_*; libnvidia-container.
    """
    errors = case.errors("container-require-unsatisfied")
    if not errors:
        return
    values = {key: value for error in errors for key, value in error.values.items()}
    condition = values.get("condition") or (f"cuda>={values['image_cuda']}" if "image_cuda" in values else "")
    driver = case.snapshot.driver
    supports = maybe(driver.driver_cuda_version)
    reach = (
        f"; driver {maybe(driver.driver_release) or ''} supports CUDA up to {supports}".replace("driver  ", "the driver ")
        if supports
        else ""
    )
    yield Problem(
        subject="container",
        what=f"The image requires {condition or 'a newer driver'}{reach}.",
        why="The container runtime checks NVIDIA_REQUIRE_CUDA of the image and does not start the container.",
        evidence=(
            *as_evidence(errors),
            *evidence("driver.driver_release", driver.driver_release),
            *evidence("driver.driver_cuda_version", driver.driver_cuda_version),
        ),
        remedies=(
            Remedy(
                Fix(
                    title=f"Use an image for CUDA {supports.release} or older"
                    if supports
                    else "Use an image of an older CUDA version",
                    commands=(f"docker pull nvidia/cuda:{supports.release}.0-base-ubuntu22.04",) if supports else (),
                    where=Where.HOST,
                )
            ),
            *fixes.update_driver(case, None),
            Remedy(
                Fix(
                    title="Or skip the check (same CUDA major only; PTX of a newer toolkit will still fail)",
                    commands=("docker run --gpus all -e NVIDIA_DISABLE_REQUIRE=1 IMAGE",),
                    where=Where.HOST,
                )
            ),
        ),
    )


def container_driver_libs_not_on_path(case: Case) -> Iterable[Problem]:
    """The driver's libraries are mounted into the container, but in a folder that the loader does not search.

    What it checks: copies of libcuda that belong to the driver where the loader finds none; in a text, such a folder's listing
    together with an error that says that no driver or platform was found.

    Why it matters: some platforms (Kubernetes engines, old runtimes, NixOS) mount them under /usr/local/nvidia/lib64 or the
    like. Images made for CUDA have it in LD_LIBRARY_PATH; other images do not.

    How to fix: put the folder on the loader's path.

    When it is wrong: where LD_LIBRARY_PATH holds the folder already, the cause is another.

    Sources: GKE documentation, GPU drivers; NVIDIA CUDA images (LD_LIBRARY_PATH).
    """
    if driver_works(case.snapshot):
        return
    listed = case.errors("shown-mounted-driver-libraries")
    errors = case.errors(*NO_DRIVER_IN_REACH, "nvml-init-failed") if listed else ()
    if errors:
        folder = next((each for each in MOUNT_FOLDERS if each in listed[0].text), MOUNT_FOLDERS[0])
        if folder in variables(case).get("LD_LIBRARY_PATH", ""):
            return
        yield _not_on_path(case, folder, (*as_evidence(errors), *as_evidence(listed)))
        return
    driver = case.snapshot.driver
    if not in_container(case.snapshot):
        known(case.snapshot.container.kind)
        return
    copies = known(driver.libcuda_copies)
    unreached = [copy for copy in copies if copy.origin is LibraryOrigin.DRIVER]
    not_found = isinstance(driver.cu_init, Missing) and driver.cu_init.reason is MissingReason.NOT_FOUND
    if unreached and not_found and not any(copy.wins for copy in copies):
        folder = unreached[0].path.rpartition("/")[0]
        proof = Evidence(fact="driver.libcuda_copies", value=unreached[0].path, source="files")
        yield _not_on_path(case, folder, (proof,))


def _not_on_path(case: Case, folder: str, texts: tuple[Evidence, ...]) -> Problem:
    return Problem(
        subject="libcuda.so.1",
        what=f"The driver's libraries are mounted in {folder}, where the loader does not look.",
        why="Neither libcuda nor NVML is found, so programs say that there is no GPU or no platform.",
        evidence=texts,
        remedies=driver_fixes.put_first_on_library_path(case, folder, Where.CONTAINER),
    )


def cdi_spec_missing(case: Case) -> Iterable[Problem]:
    """The container engine does not find the CDI specification that describes the GPU.

    What it checks: the engine's "unresolvable CDI devices" and its like.

    Why it matters: with CDI the device name nvidia.com/gpu=... is looked up in YAML or JSON files under /etc/cdi and
    /var/run/cdi. Without the file, with one that the engine does not read, or with one of an older driver, the name leads
    nowhere.

    How to fix: generate the specification into /etc/cdi; again after each driver update.

    When it is wrong: rootless engines may read other folders (cdi_spec_dirs in containers.conf).

    Sources: Container Device Interface; NVIDIA Container Toolkit documentation, CDI.
    """
    texts = seen(case, "cdi-spec-missing")
    if texts:
        yield Problem(
            subject="container engine",
            what="The container engine finds no CDI specification for the GPU in the folders that it reads.",
            why="The name nvidia.com/gpu=... is looked up in the files of /etc/cdi and /var/run/cdi.",
            evidence=texts,
            remedies=driver_fixes.generate_cdi_specification(),
        )


def nvml_unknown_cgroup(case: Case) -> Iterable[Problem]:
    """The container may not use the GPU's device nodes: its device control group does not allow them (any more).

    What it checks: NVML's "Unknown Error" in a container, and device nodes that may not be opened although their file mode
    allows it.

    Why it matters: the container runtime allows the nodes in the device control group. With no-cgroups = true (meant for
    rootless engines) it does not; and where systemd manages the groups, a `systemctl daemon-reload` takes the rule away from
    running containers.

    How to fix: set no-cgroups = false and restart the engine; for the second case start the container anew, and use CDI or
    Docker's cgroupfs driver to keep it from happening again.

    When it is wrong: on the host itself the same words mean a driver in a bad state.

    Sources: NVIDIA Container Toolkit, troubleshooting: "Failed to initialize NVML: Unknown Error".
    """
    if driver_works(case.snapshot):
        return
    texts = seen(case, "nvml-unknown-error")
    driver = case.snapshot.driver
    status = maybe(driver.nvml)
    if status is not None and status.code == CUDA_ERROR_UNKNOWN:
        texts = (*evidence("driver.nvml", driver.nvml, value=f"{status.code} {status.message}"), *texts)
    denied = [node for node in maybe(driver.device_nodes) or () if NOT_PERMITTED in node.detail.lower()]
    if not texts and not denied:
        if status is None:
            known(driver.nvml)
        return
    _in_some_container(case)
    proof = Evidence(fact="driver.device_nodes", value=f"{denied[0].path}: {denied[0].detail}", source="/dev") if denied else None
    yield Problem(
        subject="container",
        what="The container's device control group does not allow the GPU's device nodes.",
        why=_why_denied(case),
        evidence=(*texts, *((proof,) if proof is not None else ()), *seen(case, "shown-no-cgroups", "shown-cgroup-reload")),
        remedies=_allow_devices(case),
        confidence=Confidence.CERTAIN if denied or case.saw("shown-no-cgroups") else Confidence.LIKELY,
        references=(TOOLKIT_GUIDE,),
    )


def _why_denied(case: Case) -> str:
    if case.saw("shown-no-cgroups"):
        return "no-cgroups = true (meant for rootless engines) keeps the NVIDIA runtime from allowing them, so NVML cannot open them."
    return "Either no-cgroups = true keeps the NVIDIA runtime from allowing them, or a systemctl daemon-reload took the rule away while the container ran."


def _allow_devices(case: Case) -> tuple[Remedy, ...]:
    configure = driver_fixes.as_root(
        "Let the NVIDIA runtime set the device control group",
        "sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups=false --in-place",
        "sudo systemctl restart docker",
        verify=("docker run --rm --gpus all ubuntu nvidia-smi",),
    )
    if case.saw("shown-no-cgroups"):
        return (configure,)
    restart = Remedy(Fix(title="Start the container anew", commands=("docker restart CONTAINER",), where=Where.HOST))
    pass_nodes = Remedy(
        Fix(
            title="To keep a daemon-reload from taking the GPU away, name the nodes as devices (or use CDI)",
            commands=(
                "docker run --gpus all --device /dev/nvidiactl --device /dev/nvidia-uvm --device /dev/nvidia-uvm-tools --device /dev/nvidia0 IMAGE",
            ),
            where=Where.HOST,
        )
    )
    return (restart, configure, pass_nodes)


def container_rootless_cgroups(case: Case) -> Iterable[Problem]:
    """A rootless container engine may not change the device control group, and the NVIDIA runtime tries to.

    What it checks: the runtime's "bpf_prog_query(BPF_CGROUP_DEVICE) failed" and its like.

    Why it matters: the container does not start.

    How to fix: tell the runtime to leave the control group alone (no-cgroups = true), in the user's configuration; or use CDI.

    When it is wrong: with a root engine the same setting breaks the access to the GPU (nvml-unknown-cgroup).

    Sources: NVIDIA Container Toolkit documentation, rootless mode.
    """
    texts = seen(case, "container-rootless-cgroups")
    if texts:
        yield Problem(
            subject="container engine",
            what="The rootless engine may not change the device control group, which the NVIDIA runtime tries to do.",
            why="The container does not start. In a rootless engine the files' own permissions decide, no device group is needed.",
            evidence=texts,
            remedies=(
                driver_fixes.as_root(
                    "Tell the NVIDIA runtime to leave the control group alone (rootless engines only)",
                    "sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups --in-place",
                    verify=("docker run --rm --gpus all ubuntu nvidia-smi",),
                ),
            ),
        )


def _winner(case: Case) -> LibraryCopy | None:
    return next((copy for copy in maybe(case.snapshot.driver.libcuda_copies) or () if copy.wins), None)


def _reports_more_than_it_can(case: Case) -> bool:
    """Does a Linux driver report a newer CUDA version than its branch has? Then a cuda-compat libcuda answers."""
    release, reports = maybe(case.snapshot.driver.driver_release), maybe(case.snapshot.driver.driver_cuda_version)
    if release is None or reports is None or driver_platform(case.snapshot) is not DriverPlatform.LINUX:
        return False
    limit = case.matrices.drivers.max_cuda(release)
    return limit is not None and reports > limit


def cuda_compat_in_image(case: Case) -> Iterable[Problem]:
    """A cuda-compat libcuda of the container image is used in place of the host driver's own, and CUDA fails.

    What it checks: which libcuda the loader picks; a CUDA version reported that the driver's branch does not have; and errors
    803, 804 and 35 in a container.

    Why it matters: official images bring a compat library for data-centre GPUs with older drivers. On other GPUs it gives error
    804; where the host's driver is newer than it, error 803, or hides what the driver can do.

    How to fix: take the compat folder out of the loader's way.

    When it is wrong: where CUDA works with it, forward compatibility does its job and the rule does not speak.

    Sources: CUDA Compatibility guide, Forward Compatibility; NVIDIA CUDA images.
    """
    if driver_works(case.snapshot):
        return
    texts = seen(case, "cuda-compat-in-image")
    winner = _winner(case)
    wins = winner is not None and winner.origin is LibraryOrigin.COMPAT
    failures = case.errors("cuda-error-803", "forward-compat-unsupported", "cuda-error-35", "torch-driver-too-old")
    mismatch = case.errors("cuda-error-803", "forward-compat-unsupported")
    if not failures and not cuda_fails(case) and not (texts and _compat_first(case)):
        if winner is None:
            known(case.snapshot.driver.libcuda_copies)
        return
    sure = bool(texts) or wins or (bool(mismatch) and _reports_more_than_it_can(case))
    likely = bool(mismatch) and container_shown(case) and not case.saw("nvml-version-mismatch")
    if not sure and not likely:
        return
    path = (
        winner.path
        if winner is not None and wins
        else case.errors("cuda-compat-in-image")[0].values.get("path", "")
        if texts
        else ""
    )
    yield Problem(
        subject="libcuda.so.1",
        what="A cuda-compat libcuda of the image is loaded in place of the host driver's own" + (f": {path}." if path else "."),
        why="It serves data-centre GPUs with certain older drivers only; with another GPU cuInit fails with error 804, with a newer driver with 803.",
        evidence=(
            *texts,
            *as_evidence(failures),
            *cu_init_evidence(case),
            *evidence("driver.driver_release", case.snapshot.driver.driver_release),
            *evidence("driver.driver_cuda_version", case.snapshot.driver.driver_cuda_version),
        ),
        remedies=_without_compat(case),
        severity=Severity.ERROR if sure else Severity.WARNING,
        confidence=Confidence.CERTAIN if texts or wins else Confidence.LIKELY,
    )


def _compat_first(case: Case) -> bool:
    """Does a text list the compat libcuda before one of the system?"""
    compat, system = case.errors("cuda-compat-in-image"), case.errors("shown-linux-libcuda")
    return (
        bool(system)
        and (compat[0].line or 0) < (system[0].line or 0)
        and case.saw("framework-no-platform", "torch-no-gpu-visible")
    )


def _without_compat(case: Case) -> tuple[Remedy, ...]:
    return (
        *fixes.drop_from_library_path(case, "compat", None),
        Remedy(
            Fix(
                title="Or remove the compat package from the image",
                commands=("apt-get remove -y 'cuda-compat-*'", "rm -f /etc/ld.so.conf.d/*compat*.conf", "ldconfig"),
                where=Where.CONTAINER,
                needs_root=True,
                verify=("ldconfig -p | grep libcuda.so.1",),
            )
        ),
    )


def driver_capabilities_missing(case: Case) -> Iterable[Problem]:
    """NVIDIA_DRIVER_CAPABILITIES lacks the capability (video, graphics, compute ...) that the program needs.

    What it checks: driver libraries that a program in a container misses, against the capabilities that would mount them; in a
    running container the variable against the libraries found.

    Why it matters: the container runtime mounts only the libraries of the capabilities named (compute and utility by default).
    A program that needs another one reports a missing library, or even too old a driver.

    How to fix: start the container with the capability added, or with all.

    When it is wrong: where the variable holds the capability (or all), the host itself lacks the library.

    Sources: NVIDIA Container Toolkit documentation, NVIDIA_DRIVER_CAPABILITIES.
    """
    missing = case.errors("driver-lib-missing")
    if container_shown(case) and (missing or case.saw(*NO_LIBCUDA)):
        yield from _capability_of_texts(case)
        return
    if driver_works(case.snapshot) or missing:
        return
    value = known(case.snapshot.environment).get(CAPABILITIES)
    if value is None or not in_container(case.snapshot):
        return
    given = _capabilities(value)
    if "compute" not in given and "all" not in given and isinstance(case.snapshot.driver.cu_init, Missing):
        yield _lacks_capability("compute", value, variable_evidence(CAPABILITIES, value))


def _capability_of_texts(case: Case) -> Iterable[Problem]:
    value = _capabilities_text(case)
    given = _capabilities(value) if value is not None else DEFAULT_CAPABILITIES
    for error in case.errors("driver-lib-missing", *NO_LIBCUDA):
        if "nvidia-container-cli" in error.text:
            continue
        needed = _needed_capability(error)
        if needed is None or needed in given or "all" in given:
            continue
        if needed == "utility" and value is None:
            continue
        shown = variable_evidence(CAPABILITIES, value) if value is not None else ()
        yield _lacks_capability(needed, value, (*as_evidence((error,)), *shown))
        return


def _needed_capability(error: ErrorSeen) -> str | None:
    """The capability that would mount what this error misses."""
    if error.kind in NO_LIBCUDA:
        return "compute"
    named = f"{error.values.get('library', '')} {error.text}".lower()
    return next((capability for part, capability in NEEDED_CAPABILITY if part in named), None)


def _capabilities(value: str) -> frozenset[str]:
    return frozenset(part.strip().lower() for part in value.split(",") if part.strip())


def _capabilities_text(case: Case) -> str | None:
    """The variable's value in the environment or a text."""
    value = variables(case).get(CAPABILITIES)
    if value is not None:
        return value
    shown = case.errors("shown-driver-capabilities")
    return shown[-1].values["value"].split(" ")[0] if shown else None


def _lacks_capability(needed: str, value: str | None, texts: tuple[Evidence, ...]) -> Problem:
    wanted = ",".join(sorted({*(_capabilities(value) if value is not None else DEFAULT_CAPABILITIES), needed}))
    have = f"{CAPABILITIES}={value}" if value is not None else f"{CAPABILITIES} is not set (compute,utility) and"
    return Problem(
        subject=CAPABILITIES,
        what=f"{have} lacks {needed!r}, so the container runtime does not mount the libraries that the program needs.",
        why="Only the libraries of the capabilities named are mounted; the driver itself may be new enough.",
        evidence=texts,
        remedies=driver_fixes.give_capabilities(wanted),
        confidence=Confidence.CERTAIN if value is not None else Confidence.LIKELY,
    )


def container_hook_failed(case: Case) -> Iterable[Problem]:
    """The NVIDIA container runtime could not prepare the container.

    What it checks: errors of nvidia-container-cli that no other rule explains.

    Why it matters: the container does not start. The words after the colon are the reason: the driver's, the loader's or a
    mount's.

    How to fix: mend what the reason names; `nvidia-smi` and `nvidia-container-cli info` on the host show whether the driver is
    well.

    When it is wrong: where another finding names the cause, this is its consequence.

    Sources: libnvidia-container.
    """
    for error in case.errors("container-cli-failed")[:1]:
        reason = error.values.get("reason") or error.values.get("device") or ""
        yield Problem(
            subject="container engine",
            what="The NVIDIA container runtime could not prepare the container" + (f": {reason}." if reason else "."),
            why="The container does not start; the reason lies on the host.",
            evidence=as_evidence((error,)),
            remedies=(
                driver_fixes.as_root(
                    "See whether the host's driver is well",
                    "nvidia-smi",
                    "sudo nvidia-container-cli -k -d /dev/tty info",
                    verify=(),
                ),
            ),
        )


def container_unknown_device(case: Case) -> Iterable[Problem]:
    """The container asks for a GPU that does not exist on the host.

    What it checks: the runtime's "unknown device".

    Why it matters: the container does not start.

    How to fix: name an existing index or UUID (nvidia-smi -L lists them).

    When it is wrong: after a change of MIG instances the old UUIDs are gone; then it is right, and the list has to be renewed.

    Sources: libnvidia-container; docker run reference, --gpus.
    """
    errors = case.errors("container-unknown-device")
    if errors:
        device = errors[0].values.get("device", "")
        yield Problem(
            subject="container",
            what=f"The container asks for the GPU {device!r}, which the host does not have."
            if device
            else "The container asks for a GPU that the host does not have.",
            why="The container runtime passes in only GPUs that exist under that index or UUID.",
            evidence=as_evidence(errors),
            tags=("visible-devices-invalid",),
            remedies=(
                Remedy(
                    Fix(
                        title="Name a GPU that exists",
                        commands=("nvidia-smi -L", "docker run --gpus '\"device=0\"' IMAGE"),
                        where=Where.HOST,
                    )
                ),
            ),
        )


def kubernetes_gpu_not_offered(case: Case) -> Iterable[Problem]:
    """No node offers nvidia.com/gpu: the device plug-in does not run or sees no GPU.

    What it checks: the scheduler's and the device plug-in's texts.

    Why it matters: pods that ask for a GPU stay pending.

    How to fix: set the node's container runtime to nvidia, install driver and device plug-in (or the GPU operator), and look at
    the plug-in's log.

    When it is wrong: where the node's GPUs are all in use, "Insufficient nvidia.com/gpu" is right and nothing is broken.

    Sources: Kubernetes device plug-ins; NVIDIA k8s-device-plugin.
    """
    texts = seen(case, "kubernetes-no-gpu-resource")
    if texts:
        yield Problem(
            subject="Kubernetes",
            what="No node offers the GPU (nvidia.com/gpu), or all are in use.",
            why="The device plug-in offers GPUs only where NVML works in its own container, which needs the nvidia runtime there.",
            evidence=texts,
            confidence=Confidence.LIKELY,
            remedies=(
                driver_fixes.as_root(
                    "On the node: make nvidia the runtime of containerd, then look at the plug-in's log",
                    "sudo nvidia-ctk runtime configure --runtime=containerd --set-as-default",
                    "sudo systemctl restart containerd",
                    verify=(
                        "kubectl describe node | grep nvidia.com/gpu",
                        "kubectl logs -n kube-system -l name=nvidia-device-plugin-ds",
                    ),
                ),
            ),
        )


def driver_libs_in_image(case: Case) -> Iterable[Problem]:
    """The image holds copies of the driver's libraries, so the container runtime cannot mount the host's.

    What it checks: the runtime's "file creation failed ... file exists".

    Why it matters: an image that was built (or committed) with a driver inside has libcuda or libnvidia-ml files of another
    release; the container does not start, or CUDA fails with a version mismatch.

    How to fix: remove the driver's libraries from the image; never install a driver in one.

    When it is wrong: never seen; the runtime names the file.

    Sources: libnvidia-container; NVIDIA, CUDA on WSL user guide.
    """
    texts = seen(case, "driver-libs-in-image")
    if texts:
        yield Problem(
            subject="image",
            what="The image holds copies of the driver's libraries, where the container runtime wants to mount the host's.",
            why="A driver belongs to the host only; an image that was committed with its libraries does not start.",
            evidence=texts,
            remedies=(
                Remedy(
                    Fix(
                        title="Remove the driver's libraries in the image's Dockerfile",
                        commands=("RUN rm -f /usr/lib/x86_64-linux-gnu/libcuda.so* /usr/lib/x86_64-linux-gnu/libnvidia-*.so*",),
                        where=Where.CONTAINER,
                        needs_root=True,
                    )
                ),
            ),
        )


def container_cgroup_v2_unsupported(case: Case) -> Iterable[Problem]:
    """The NVIDIA Container Toolkit is too old for this host's control groups (version 2).

    What it checks: the runtime's "cgroup subsystem devices not found".

    Why it matters: distributions of 2021 and later mount control groups of version 2 only; the toolkit knows them from
    libnvidia-container 1.8 on.

    How to fix: update the toolkit; or boot with systemd.unified_cgroup_hierarchy=0.

    When it is wrong: never seen.

    Sources: libnvidia-container, release notes of 1.8.0.
    """
    texts = seen(case, "container-cgroup-v2-unsupported")
    if texts:
        yield Problem(
            subject="container engine",
            what="The installed NVIDIA Container Toolkit does not know control groups of version 2, which this host uses.",
            why="libnvidia-container knows them from 1.8 on.",
            evidence=texts,
            remedies=driver_fixes.install_container_toolkit(case),
        )


def docker_too_old(case: Case) -> Iterable[Problem]:
    """This Docker does not know the option --gpus, which came with 19.03.

    What it checks: Docker's "unknown flag: --gpus".

    Why it matters: without it the GPU is given by the nvidia runtime only.

    How to fix: update Docker; or use --runtime=nvidia.

    When it is wrong: podman and other engines that are called docker use --device nvidia.com/gpu=all.

    Sources: Docker release notes, 19.03.
    """
    texts = seen(case, "docker-too-old")
    if texts:
        yield Problem(
            subject="container engine",
            what="This Docker does not know --gpus; the option came with Docker 19.03.",
            why="Without it the GPU is given by the nvidia runtime, or by CDI device names.",
            evidence=texts,
            remedies=(
                driver_fixes.as_root(
                    "Update Docker", "sudo apt-get install --only-upgrade docker-ce docker.io", verify=("docker --version",)
                ),
                Remedy(Fix(title="Or use the nvidia runtime", commands=("docker run --runtime=nvidia IMAGE",), where=Where.HOST)),
            ),
        )


def shm_too_small(case: Case) -> Iterable[Problem]:
    """The container's shared memory (/dev/shm) is too small for the program.

    What it checks: the texts of torch's data loaders, NCCL and NVIDIA's images.

    Why it matters: containers get 64 MB by default; data loaders with workers and NCCL need more, and die with a bus error.

    How to fix: start the container with --ipc=host or a larger --shm-size.

    When it is wrong: outside of containers a full /dev/shm gives the same text.

    Sources: docker run reference, --shm-size; PyTorch README, Docker image.
    """
    texts = seen(case, "shm-too-small")
    if texts:
        yield Problem(
            subject="shared memory",
            what="The shared memory of the container is too small for the program.",
            why="Containers get 64 MB by default; data loaders with workers and NCCL need more.",
            evidence=texts,
            severity=Severity.WARNING,
            remedies=(
                Remedy(
                    Fix(
                        title="Start the container with the host's shared memory, or with more",
                        commands=("docker run --gpus all --ipc=host IMAGE", "docker run --gpus all --shm-size=8g IMAGE"),
                        where=Where.HOST,
                        verify=("df -h /dev/shm",),
                    )
                ),
            ),
        )


RULES = (
    Rule(
        "CD601",
        "container-toolkit-missing",
        Severity.ERROR,
        "Docker has no NVIDIA runtime",
        container_toolkit_missing,
        explained_by=("docker-snap",),
    ),
    Rule("CD602", "docker-snap", Severity.ERROR, "Docker comes from the snap package", docker_snap),
    Rule(
        "CD603",
        "container-gpus-flag-missing",
        Severity.ERROR,
        "The container was started without the GPU",
        container_gpus_flag_missing,
        explained_by=("container-visible-devices-none", "container-toolkit-missing"),
    ),
    Rule(
        "CD604",
        "container-require-unsatisfied",
        Severity.ERROR,
        "The image requires a newer driver",
        container_require_unsatisfied,
    ),
    Rule(
        "CD605",
        "container-driver-libs-not-on-path",
        Severity.ERROR,
        "The mounted driver libraries are not on the loader's path",
        container_driver_libs_not_on_path,
    ),
    Rule("CD606", "cdi-spec-missing", Severity.ERROR, "No CDI specification for the GPU", cdi_spec_missing),
    Rule(
        "CD607",
        "nvml-unknown-cgroup",
        Severity.ERROR,
        "The container's control group does not allow the GPU",
        nvml_unknown_cgroup,
        explained_by=("docker-snap",),
    ),
    Rule(
        "CD608",
        "cuda-compat-in-image",
        Severity.ERROR,
        "A cuda-compat libcuda of the image is loaded",
        cuda_compat_in_image,
        explained_by=("forward-compat-unsupported",),
    ),
    Rule(
        "CD609",
        "driver-capabilities-missing",
        Severity.ERROR,
        "The container lacks a driver capability",
        driver_capabilities_missing,
    ),
    Rule(
        "CD610",
        "container-visible-devices-none",
        Severity.ERROR,
        "NVIDIA_VISIBLE_DEVICES passes in no GPU",
        container_visible_devices_none,
    ),
    Rule(
        "CD611",
        "container-hook-failed",
        Severity.ERROR,
        "The NVIDIA container runtime failed",
        container_hook_failed,
        explained_by=(
            "nvml-version-mismatch",
            "kernel-module-not-loaded",
            "driver-userspace-missing",
            "container-require-unsatisfied",
            "container-unknown-device",
            "container-rootless-cgroups",
            "wsl-windows-build-unsupported",
            "wsl-adapter-failed",
            "nvml-unknown-cgroup",
            "docker-snap",
            "driver-libs-in-image",
            "container-cgroup-v2-unsupported",
        ),
    ),
    Rule(
        "CD612",
        "container-unknown-device",
        Severity.ERROR,
        "The container asks for a GPU that does not exist",
        container_unknown_device,
    ),
    Rule(
        "CD613",
        "shm-too-small",
        Severity.WARNING,
        "The container's shared memory is too small",
        shm_too_small,
    ),
    Rule(
        "CD614",
        "kubernetes-gpu-not-offered",
        Severity.ERROR,
        "No node offers the GPU",
        kubernetes_gpu_not_offered,
        explained_by=("container-toolkit-missing", "kernel-module-not-loaded", "driver-userspace-missing"),
    ),
    Rule(
        "CD615",
        "container-rootless-cgroups",
        Severity.ERROR,
        "A rootless engine may not set the control group",
        container_rootless_cgroups,
    ),
    Rule("CD616", "driver-libs-in-image", Severity.ERROR, "The image holds the driver's libraries", driver_libs_in_image),
    Rule(
        "CD617",
        "container-cgroup-v2-unsupported",
        Severity.ERROR,
        "The container toolkit is too old for cgroup v2",
        container_cgroup_v2_unsupported,
    ),
    Rule("CD618", "docker-too-old", Severity.ERROR, "Docker does not know --gpus", docker_too_old),
)
