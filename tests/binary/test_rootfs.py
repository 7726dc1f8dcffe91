from __future__ import annotations

from pathlib import Path

import pytest

from cudadoctor.binary.rootfs import RootFolder


@pytest.fixture
def image(tmp_path: Path) -> RootFolder:
    (tmp_path / "usr/lib").mkdir(parents=True)
    (tmp_path / "usr/lib/libx.so.1").write_text("")
    (tmp_path / "lib").symlink_to("usr/lib")
    (tmp_path / "usr/lib/libx.so").symlink_to("/lib/libx.so.1")
    (tmp_path / "out").symlink_to("../../../../etc/passwd")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("/nowhere")
    return RootFolder(str(tmp_path))


@pytest.mark.parametrize(
    ("path", "real"),
    [
        ("/lib/libx.so", "/usr/lib/libx.so.1"),
        ("/usr/lib/../lib/./libx.so", "/usr/lib/libx.so.1"),
        ("/../../lib", "/usr/lib"),
        ("/", "/"),
        ("/out", None),
        ("/loop", None),
        ("/dangling", None),
        ("/usr/lib/none", None),
    ],
)
def test_links_stay_inside(path: str, real: str | None, image: RootFolder) -> None:
    assert image.real_path(path) == real


def test_folders(image: RootFolder) -> None:
    assert image.is_folder("/lib")
    assert not image.is_folder("/lib/libx.so")
    assert not image.is_folder("/none")


def test_this_machine(tmp_path: Path) -> None:
    root = RootFolder()
    (tmp_path / "link").symlink_to(".")
    (tmp_path / "loop").symlink_to("loop")
    assert root.real_path(str(tmp_path / "link")) == str(tmp_path.resolve())
    assert root.real_path(str(tmp_path / "loop")) is None
    assert root.is_circle(str(tmp_path / "loop"))
    assert not root.is_circle(str(tmp_path / "none"))
    assert root.real_path("/\0") is None
