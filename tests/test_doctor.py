"""What is shown of the build cache, and that emptying it empties it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbench import doctor


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KBENCH_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("KBENCH_CACHE_GB", "2")
    return tmp_path / "builds"


def test_the_cache_is_shown_with_its_size_and_its_bound(cache: Path) -> None:
    for key in ("one", "two"):
        (cache / key).mkdir(parents=True)
        (cache / key / "entry.json").write_text("{}")
    (cache / "one" / "one.so").write_bytes(b"x" * 3_000_000)
    (cache / "work" / "three").mkdir(parents=True)

    assert doctor.describe_cache() == f"{cache}: 2 builds, 3 MB of at most 2 GB"


def test_emptying_it_leaves_builds_under_way_alone(cache: Path) -> None:
    (cache / "one").mkdir(parents=True)
    (cache / "one" / "entry.json").write_text("{}")
    (cache / "work" / "two" / "build.x").mkdir(parents=True)
    (cache / "locks").mkdir()

    assert doctor.clear_cache().startswith(f"emptied {cache}: 1 builds")
    assert sorted(path.name for path in cache.iterdir()) == ["locks", "work"]
    assert (cache / "work" / "two" / "build.x").is_dir()


def test_a_cache_that_nothing_was_built_in_is_empty(cache: Path) -> None:
    assert doctor.describe_cache().startswith(f"{cache}: 0 builds")
    assert doctor.clear_cache().startswith("emptied")
    assert not cache.exists()
