"""Folders that a stranger has filled: they go away, they are counted, and nothing outside of them is touched."""

from __future__ import annotations

import os
from pathlib import Path

from kbench import folders


def deep(folder: Path, depth: int) -> None:
    """Nest folders beyond what a path or a stack of calls can hold."""
    descriptor = os.open(folder, os.O_DIRECTORY)
    for _ in range(depth):
        os.mkdir("d" * 20, dir_fd=descriptor)
        inner = os.open("d" * 20, os.O_DIRECTORY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))
    os.close(descriptor)


def test_a_folder_goes_with_all_that_is_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "a/b").mkdir(parents=True)
    (folder / "a/b/file").write_text("x")
    (folder / "a/.hidden").write_text("x")
    (folder / os.fsdecode(b"\xff\n")).write_text("x")
    os.mkfifo(folder / "pipe")

    folders.remove(folder)

    assert not folder.exists()


def test_no_depth_is_too_deep(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    deep(folder, 1100)

    folders.remove(folder)

    assert not folder.exists()


def test_folders_without_any_rights_go_too(tmp_path: Path) -> None:
    inner = tmp_path / "folder/a/b"
    inner.mkdir(parents=True)
    (inner / "file").write_text("x")
    for path in (inner, inner.parent, inner.parent.parent):
        path.chmod(0)

    folders.remove(tmp_path / "folder")

    assert not (tmp_path / "folder").exists()


def test_no_link_is_followed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir(mode=0o755)
    (kept / "file").write_text("mine")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "to_folder").symlink_to(kept)
    (folder / "to_file").symlink_to(kept / "file")
    (tmp_path / "link").symlink_to(kept)

    folders.remove(folder)
    folders.remove(tmp_path / "link")

    assert not folder.exists()
    assert (kept / "file").read_text() == "mine"
    assert kept.stat().st_mode & 0o777 == 0o755


def test_what_is_not_there_is_no_error(tmp_path: Path) -> None:
    folders.remove(tmp_path / "gone")


def test_usage_counts_what_lies_on_the_disk(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/big").write_bytes(bytes(10**6))
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(10**12)

    n_bytes, n_entries = folders.usage(tmp_path, most_bytes=10**9, most_entries=100)

    assert 10**6 <= n_bytes < 2 * 10**6
    assert n_entries == 3


def test_usage_stops_counting_at_the_most(tmp_path: Path) -> None:
    for index in range(50):
        (tmp_path / str(index)).touch()

    assert folders.usage(tmp_path, most_bytes=10**9, most_entries=10) == (0, 11)


def test_nothing_hides_from_usage_by_its_depth(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    deep(folder, 300)

    assert folders.usage(folder, most_bytes=10**9, most_entries=10**6)[0] > 10**9
    folders.remove(folder)
