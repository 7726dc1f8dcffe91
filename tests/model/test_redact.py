"""What identifies people, machines and secrets is replaced, everywhere and only there."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import structs

from cudadoctor.model.codec import from_json, to_builtins, to_json
from cudadoctor.model.fact import Known, Missing, MissingReason, OtherSource
from cudadoctor.model.redact import Identity, redact, redact_text
from cudadoctor.model.report import Report
from cudadoctor.model.snapshot import ErrorSeen, Host, Snapshot, TextReading
from cudadoctor.model.versions import DottedVersion
from tests.model.filled import filled
from tests.report.hostile import HOSTILE, hostile_report
from tests.report.sample_reports import SAMPLES, healthy_h100, sick_node

UUID = "8932f937-d72c-4106-c12f-20bd9faed9f6"
OTHER_UUID = "0a1b2c3d-1111-2222-3333-444455556666"
ALICE = Identity(users=("alice",), hosts=("gpu7.lab.example.com",), homes=("/data/homes/alice",))


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        # home folders
        ("/home/alice/.venv/bin/python", "~/.venv/bin/python"),
        ("/data/homes/alice/x and /data/homes/alice", "~/x and ~"),
        ("/data/homes/alice2/x", "/data/homes/alice2/x"),
        ("PATH=/home/alice/bin:/home/bob/bin:/usr/bin", "PATH=~/bin:/home/user-2/bin:/usr/bin"),
        ("/Users/alice/x", "~/x"),
        (r"C:\Users\alice\AppData", r"~\AppData"),
        (r"C:\Users\John Smith\AppData", r"C:\Users\user-2\AppData"),
        ("/mnt/c/Users/alice/x", "~/x"),
        ("/srv/home/alice/x", "/srv/home/user-1/x"),
        ("file '/home/alice': gone", "file '~': gone"),
        ("/home/linuxbrew/.linuxbrew/bin", "/home/linuxbrew/.linuxbrew/bin"),
        ("/root/.cache /homework/alicent", "/root/.cache /homework/alicent"),
        # names
        ("alice may not read it; Alice, malice and alices may", "user-1 may not read it; Alice, malice and alices may"),
        ("/tmp/torchinductor_alice/x", "/tmp/torchinductor_user-1/x"),
        ("Linux gpu7 5.15.0-91-generic #101", "Linux host-1 5.15.0-91-generic #101"),
        ("gpu7.lab.example.com and gpu7", "host-1 and host-1"),
        ("bob@node-12:~/x$ nvidia-smi", "user-2@host-2:~/x$ nvidia-smi"),
        # GPUs
        (f"GPU-{UUID}", "GPU-uuid-1"),
        (f"GPU-{UUID.upper()} {UUID}", "GPU-uuid-1 uuid-1"),
        (f"MIG-{OTHER_UUID} MIG-GPU-{UUID}/7/0", "MIG-uuid-1 MIG-GPU-uuid-2/7/0"),
        (f"CUDA_VISIBLE_DEVICES=GPU-8932f937 of GPU-{UUID}", "CUDA_VISIBLE_DEVICES=GPU-uuid-1 of GPU-uuid-1"),
        ("GPU-8932f937", "GPU-uuid-1"),
        ("Serial Number                    : 1320220012345", "Serial Number                    : serial-1"),
        ("Serial: N/A, serial connection", "Serial: N/A, serial connection"),
        # secrets
        ("hf_abcdefghijklmnopqrstuvwxyz", "<redacted>"),
        ("ghp_0123456789abcdefghijABCDEFGHIJ012345", "<redacted>"),
        ("github_pat_0123456789abcdefghijAB", "<redacted>"),
        ("AKIAIOSFODNN7EXAMPLE", "<redacted>"),
        ("sk-proj-abc123DEF456ghi789", "<redacted>"),
        ("Authorization: Bearer abc.DEF-123456", "Authorization: Bearer <redacted>"),
        ("password=hunter2 next", "password=<redacted> next"),
        ("DB_PASSWORD: 'hunter2'", "DB_PASSWORD: '<redacted>'"),
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG", "aws_secret_access_key = <redacted>"),
        ("--token abcdef", "--token <redacted>"),
        ("https://user:pass@pypi.example/simple", "https://<redacted>@pypi.example/simple"),
        ("git+https://0123abc@github.com/o/r", "git+https://<redacted>@github.com/o/r"),
        ("https://pypi.example/?token=abc&x=1", "https://pypi.example/?token=<redacted>&x=1"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----", "<redacted>"),
        # addresses
        ("ann.lee+x@example.org", "email-1"),
        ("http://10.1.2.3:8080/ and tcp 192.168.1.7", "http://ip-1:8080/ and tcp ip-2"),
        ("MASTER at 10.1.2.3:29500, 127.0.0.1:29500", "MASTER at ip-1:29500, 127.0.0.1:29500"),
        ("ether 52:54:00:ab:cd:ef", "ether mac-1"),
    ],
)
def test_private_text(text: str, redacted: str) -> None:
    assert redact_text(text, ALICE) == redacted


@pytest.mark.parametrize(
    "text",
    [
        "driver 580.65.06, Windows 32.0.15.6636, cuDNN 9.1.0.70, cuRAND 10.3.9.90, libcuda.so.580.65.06",
        "torch@2.9.1 @torch.jit.script x@y",
        "0000:3B:00.0 00000000:3B:00.0",
        "sm_90a compute_120 GPU-0 GPU 0 MIG 1g.10gb GPU-aa",
        "Ubuntu 24.04 root user admin docker container",
        "unexpected token: ';' tokenizers=0.20 max_tokens=512 secretary",
        "scikit sk-learn task-0123456789abcdefghij",
        "git@github.com:org/repo ssh://git@github.com/org/repo",
        "password=$PASSWORD password=<redacted>",
        "see https://docs.nvidia.com/cuda/ and ~/x",
        "basic authentication, bearer of bad news",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert redact_text(text, ALICE) == text


@pytest.mark.parametrize("name", ["root", "ubuntu", "user", "torch", "cuda", "python", "al", "x", "ec2-user", "nvidia", "580"])
def test_a_name_that_is_a_word_destroys_no_words(name: str) -> None:
    text = f"{name} is here: Ubuntu, torch 2.9 in site-packages/torch/lib/{name}, python3, 580.65.06, user root, cuda:0, al x"
    assert redact_text(text, Identity(users=(name,), hosts=(name,))) == text


@pytest.mark.parametrize("name", ["ubuntu", "torch", "al", "max"])
def test_a_name_that_is_a_word_is_hidden_where_it_must_be_a_name(name: str) -> None:
    text = f"/home/{name}/lib/python/site-packages/torch; USER={name} at {name}@gpu-box:~$"
    redacted = redact_text(text)
    assert redacted == "~/lib/python/site-packages/torch; USER=user-1 at user-1@host-1:~$"


def test_names_are_learned_from_the_text_itself() -> None:
    assert redact_text("HOME=/scratch/carol cd /scratch/carol/x; carol may") == "HOME=~ cd ~/x; user-1 may"
    assert redact_text("HOSTNAME=frontier12\nssh frontier12") == "HOSTNAME=host-1\nssh host-1"


def test_pseudonyms_are_stable_within_a_report() -> None:
    snapshot = Snapshot(
        environment=Known({"CUDA_VISIBLE_DEVICES": "GPU-8932f937"}, "environment"),
        errors=(ErrorSeen(kind="x", text=f"device {UUID} of GPU-{OTHER_UUID}", source="GPU-" + OTHER_UUID),),
    )
    report = structs.replace(healthy_h100(), snapshot=snapshot, summary=f"GPU-{UUID}")
    redacted = redact(report)
    assert redacted.summary == "GPU-uuid-1"
    assert redacted.snapshot.environment == Known({"CUDA_VISIBLE_DEVICES": "GPU-uuid-1"}, "environment")
    assert redacted.snapshot.errors[0].text == "device uuid-1 of GPU-uuid-2"
    assert redacted.snapshot.errors[0].source == "GPU-uuid-2"


def test_every_gpu_keeps_a_uuid_of_its_own() -> None:
    gpus = redact(sick_node()).snapshot.gpus
    assert isinstance(gpus, Known)
    assert [gpu.uuid.value for gpu in gpus.value if isinstance(gpu.uuid, Known)] == [f"GPU-uuid-{n}" for n in range(1, 9)]


@pytest.mark.parametrize(
    ("key", "text", "redacted"),
    [
        ("HF_TOKEN", "anything", "<redacted>"),
        ("WANDB_API_KEY", "0123", "<redacted>"),
        ("NGC_CLI_API_KEY", "x y z", "<redacted>"),
        ("AWS_SECRET_ACCESS_KEY", "x", "<redacted>"),
        ("TOKENIZERS_PARALLELISM", "false", "false"),
        ("CUDA_VISIBLE_DEVICES", "0,1", "0,1"),
        ("HF_TOKEN", "", ""),
        ("gpu_serial", "1320220012345", "serial-1"),
        ("serial", "N/A", "N/A"),
    ],
)
def test_the_name_of_a_variable_says_what_its_value_is(key: str, text: str, redacted: str) -> None:
    snapshot = Snapshot(environment=Known({key: text}, "environment"), readings=(TextReading(kind="env", values={key: text}),))
    hidden = redact(structs.replace(healthy_h100(), snapshot=snapshot)).snapshot
    assert hidden.environment == Known({key: redacted}, "environment")
    assert hidden.readings[0].values == {key: redacted}


def test_keys_are_never_touched() -> None:
    key = f"/home/alice/{UUID}"
    snapshot = Snapshot(environment=Known({key: "/home/alice"}, "environment"))
    assert redact(structs.replace(healthy_h100(), snapshot=snapshot)).snapshot.environment == Known({key: "~"}, "environment")


def test_everything_in_a_fact_is_redacted() -> None:
    host = Host(
        os_name=Known("/home/alice", "/home/alice/a", others=(OtherSource("/home/alice/b", "/home/alice/c"),)),
        kernel_release=Missing(MissingReason.FAILED, "cannot read /home/alice/d", "/home/alice/e"),
        glibc=Known(DottedVersion.parse("2.39 (alice at /home/alice)"), "ldd"),
    )
    redacted = redact(structs.replace(healthy_h100(), snapshot=Snapshot(host=host)), ALICE)
    assert "alice" not in to_json(redacted).decode()
    assert redacted.snapshot.host.glibc == Known(DottedVersion.parse("2.39"), "ldd")


def test_lists_inside_free_values_are_redacted() -> None:
    reading = TextReading(kind="x", values={"paths": ["/home/alice", {"deep": ["/home/alice/x"]}], "number": 3})
    hidden = redact(structs.replace(healthy_h100(), snapshot=Snapshot(readings=(reading,)))).snapshot.readings[0].values
    assert hidden == {"paths": ["~", {"deep": ["~/x"]}], "number": 3}


def test_the_node_that_the_user_named_and_identifiers_stay() -> None:
    identity = Identity(users=("arch-missing-in-wheel", "certain"), hosts=("gpu-a17",))
    redacted = redact(sick_node(), identity)
    assert redacted.node == "gpu-a17"
    assert [finding.code for finding in redacted.findings] == [finding.code for finding in sick_node().findings]


@pytest.mark.parametrize("name", [*SAMPLES, *HOSTILE])
def test_redacting_twice_changes_nothing(name: str) -> None:
    report = SAMPLES[name]() if name in SAMPLES else hostile_report(HOSTILE[name][:5_000])
    once = redact(report, ALICE)
    assert redact(once, ALICE) == once
    assert redact(once) == once


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_lose_only_the_private_parts(name: str) -> None:
    report = SAMPLES[name]()
    text = to_json(redact(report)).decode()
    assert "alice" not in text
    assert UUID[:20] not in text
    restored = re.sub(r"GPU-uuid-(\d)", lambda m: f"GPU-8932f937-d72c-4106-c12f-20bd9faed9{int(m[1]) - 1:02x}", text)
    assert from_json(restored.replace('"~/', '"/home/alice/'), Report) == report


@pytest.mark.parametrize("missing", [False, True])
def test_a_redacted_report_is_a_report(missing: bool) -> None:
    report = filled(Report, missing=missing)
    for word in sorted(set(re.findall(r"[a-z]{4,}", json.dumps(to_builtins(report)))))[::3]:
        redacted = redact(report, Identity(users=(word,), hosts=(word,)))
        assert from_json(to_json(redacted), Report) == redacted


PIECES = [
    "/home/",
    "alice",
    "bob",
    UUID,
    "GPU-",
    "@",
    "://",
    "password=",
    "x1234567",
    ".",
    "-",
    " ",
    "10.0.0.1",
    ":8080",
    "user-1",
    "<redacted>",
]


@settings(derandomize=True)
@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
@example("/home/user-1/home/alice")
def test_any_text_is_redacted_once_and_for_all(text: str) -> None:
    once = redact_text(text, ALICE)
    assert redact_text(once, ALICE) == once
    assert UUID not in once


@pytest.mark.parametrize(
    "text",
    [
        *("a" * 200_000, "a." * 100_000, "a@" * 100_000, "://" * 60_000, "/home/" * 30_000, "serial" * 30_000, "0" * 200_000),
        *(
            "-----BEGIN PRIVATE KEY-----" * 5_000,
            "password" * 20_000,
            "bearer " * 30_000,
            "ab:" * 60_000,
            "1." * 100_000,
            " " * 200_000,
        ),
        "C:\\Users\\" * 20_000,
    ],
    ids=lambda text: text[:12],
)
def test_hostile_text_is_read_in_linear_time(text: str) -> None:
    redact_text(text, ALICE)


def test_a_process_declares_its_names() -> None:
    environment = {"USER": "alice", "LOGNAME": "alice", "HOME": "/data/homes/alice", "HOSTNAME": "gpu7", "SUDO_USER": ""}
    identity = Identity.declared(environment, "gpu7.lab")
    assert identity == Identity(users=("alice", "alice"), hosts=("gpu7.lab", "gpu7"), homes=("/data/homes/alice",))
    assert redact_text("alice on gpu7.lab in /data/homes/alice/x", identity) == "user-1 on host-1 in ~/x"
    assert Identity.declared({}) == Identity()
