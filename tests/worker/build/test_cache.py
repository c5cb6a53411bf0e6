"""What the build cache keeps, forgets and refuses; no compiler runs here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kbench.worker.build.cache import Cache, fingerprints
from kbench.worker.build.request import BuildResult


def store(cache: Cache, key: str, content: bytes = b"object", headers: dict[str, str] | None = None) -> BuildResult:
    with cache.lock(key) as folder:
        artifact = folder / "made.so"
        artifact.write_bytes(content)
        return cache.store(BuildResult(ok=True, key=key), headers or {}, artifact)


def last_used(cache: Cache, key: str, time_s: float) -> None:
    for path in (cache.root / key).iterdir():
        os.utime(path, (time_s, time_s))


def test_what_is_stored_is_found_again(tmp_path: Path) -> None:
    stored = store(Cache(tmp_path), "key")
    found = Cache(tmp_path).lookup("key")

    assert found is not None
    assert found.cached
    assert found.path == stored.path
    assert Path(found.path).read_bytes() == b"object"


def test_an_entry_under_anothers_name_is_refused(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    store(cache, "key")
    (cache.root / "key").rename(cache.root / "other")

    assert cache.lookup("other") is None


def test_a_link_in_place_of_the_object_is_not_taken(tmp_path: Path) -> None:
    """A compiler that was made to do it must not have the builder copy a secret into the cache."""
    (tmp_path / "secret").write_text("secret")
    cache = Cache(tmp_path)
    with cache.lock("key") as folder, pytest.raises(OSError):
        (folder / "made.so").symlink_to(tmp_path / "secret")
        cache.store(BuildResult(ok=True, key="key"), {}, folder / "made.so")
    assert cache.lookup("key") is None


def test_an_entry_holds_as_long_as_its_headers_do(tmp_path: Path) -> None:
    header = tmp_path / "a.h"
    header.write_text("1")
    cache = Cache(tmp_path)
    store(cache, "key", headers=fingerprints([str(header)]))
    before = cache.lookup("key")
    header.write_text("2")

    assert before is not None
    assert cache.lookup("key") is None


def test_a_header_that_could_not_be_read_makes_no_entry_that_holds(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    missing, pipe = str(tmp_path / "missing.h"), str(tmp_path / "pipe")
    cache = Cache(tmp_path)
    store(cache, "key", headers=fingerprints([missing, pipe]))

    assert fingerprints([missing, pipe]) == {missing: "", pipe: ""}
    assert cache.lookup("key") is None


def test_over_its_limit_it_forgets_what_was_not_used_for_longest(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit_bytes=12_000)
    for index, key in enumerate(("old", "older", "new")):
        store(cache, key, b"x" * 3000)
        last_used(cache, key, 1000.0 + index)
    cache.lookup("old")
    store(cache, "newest", b"x" * 3000)

    assert {key: cache.lookup(key) is not None for key in ("old", "older", "newest")} == {"old": True, "older": False, "newest": True}


def test_an_entry_larger_than_the_cache_is_kept_for_who_made_it(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit_bytes=10)
    assert Path(store(cache, "key", b"x" * 100).path).exists()


def test_who_does_not_wait_is_told_that_a_key_is_being_built(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    with cache.lock("key"):
        with pytest.raises(BlockingIOError), cache.lock("key", wait=False):
            pass
        with cache.lock("other", wait=False):
            pass


def test_no_two_builds_have_a_folder_of_the_same_name(tmp_path: Path) -> None:
    """A compiler that outlives its builder must not write into the next build."""
    cache = Cache(tmp_path)
    with cache.lock("key") as first:
        (first / "late.o").touch()
    with cache.lock("key") as second:
        assert first != second
        assert not list(second.iterdir())


def test_what_a_killed_process_was_removing_is_no_entry_and_goes_with_the_rest(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit_bytes=5000)
    store(cache, "key", b"x" * 3000)
    (cache.root / "key").rename(cache.root / "key.0123.gone")
    for key in ("one", "two"):
        assert store(cache, key, b"x" * 3000).ok

    assert not list(cache.root.glob("*.gone"))
    assert cache.lookup("two") is not None


def test_a_folder_that_is_named_from_here_is_found_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Cache(Path("near")).root == tmp_path / "near" / "builds"
