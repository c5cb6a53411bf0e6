"""What kbench.toml may say, and what beats what."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbench.config import Config, Tolerance, cache_limit_bytes, parse_config
from kbench.errors import UsageError

PATH = Path("kbench.toml")


def test_the_command_line_beats_the_task_the_task_its_section_and_that_the_default() -> None:
    config = parse_config("[verify]\ntrials = 7\natol = 1e-3\n[tasks.a]\ntrials = 9\n", PATH)

    assert config.settings_for("b", {}).trials == 7
    assert config.settings_for("a", {}).trials == 9
    assert config.settings_for("a", {"trials": 2}).trials == 2
    assert config.settings_for("a", {}).atol == 1e-3
    assert config.settings_for("a", {}).rtol == 1e-4


def test_half_precision_has_stated_tolerances_that_the_command_line_beats() -> None:
    config = parse_config("[verify.tolerances]\nbfloat16 = { atol = 0.5, rtol = 0.25 }\n", PATH)
    settings = config.settings_for("a", {})

    assert settings.tolerances["float16"] == Tolerance(atol=1e-2, rtol=1e-2)
    assert settings.tolerances["bfloat16"] == Tolerance(atol=0.5, rtol=0.25)
    assert config.settings_for("a", {"atol": 1e-5}).tolerances["bfloat16"] == Tolerance(atol=1e-5, rtol=0.25)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[verify]\natoll = 1", "did you mean `atol`"),
        ("[verify]\nprecision = 0.1", "move it to `[time]`"),
        ("[verify]\natol = -1", "`verify.atol` is `-1`"),
        ("[verify]\natol = nan", "`verify.atol` is `nan`"),
        ('[verify]\natol = "1e-4"', '`verify.atol` is `"1e-4"`'),
        ("[verify]\nrtol = 1", "below 1"),
        ("[verify]\ntrials = 0", "`verify.trials` is `0`"),
        ("[verify]\ntrials = true", "whole number"),
        ("[time]\nprecision = 5", "for 1 %, write `0.01`"),
        ('[time]\nbaselines = ["@fast"]', "@compile"),
        ("verify = 3", "must be a table"),
        ("[verify", "not TOML"),
        ("[colour]\nx = 1", "unknown key `colour`"),
    ],
)
def test_what_is_wrong_is_said_with_the_key_the_value_and_the_way_out(text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_config(text, PATH)

    assert words in f"{caught.value.message} {caught.value.hint}"
    assert caught.value.exit_code == 2


@given(st.text(max_size=80))
def test_any_text_is_settings_or_a_usage_error(text: str) -> None:
    try:
        assert isinstance(parse_config(text, PATH), Config)
    except UsageError:
        pass


KEYS = st.sampled_from(
    [
        "verify",
        "time",
        "tasks",
        "tolerances",
        "atol",
        "rtol",
        "trials",
        "timeout_s",
        "allow_nan",
        "precision",
        "budget_s",
        "baselines",
        "float16",
        "colour",
        "a",
    ]
)
VALUES = st.recursive(
    st.booleans() | st.integers() | st.floats() | st.text(max_size=10) | st.sampled_from(["@compile", "@cudagraph", 1e-4, 0, -1]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_any_tables_are_settings_or_a_usage_error_of_one_line(tables: dict[str, object]) -> None:
    """What is accepted can be settled for a task, too."""
    try:
        config = parse_config("\n".join(f"{key} = {toml(value)}" for key, value in tables.items()), PATH)
        config.settings_for("a", {})
    except UsageError as error:
        assert "\n" not in error.message + error.hint


def toml(value: object) -> str:
    """Write a value of TOML on one line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + "".join(f"\\U{ord(c):08x}" if not 0xD800 <= ord(c) < 0xE000 else "?" for c in value) + '"'
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(inner)}" for key, inner in value.items()) + "}"
    return repr(value)


def test_equal_settings_have_equal_names_and_others_have_others() -> None:
    one, same, other = (Config().settings_for("a", overrides) for overrides in ({}, {}, {"trials": 4}))

    assert one.sha256 == same.sha256
    assert one.sha256 != other.sha256


def test_a_table_for_a_task_that_is_not_there_is_refused() -> None:
    config = parse_config("[tasks.cvea]\ntrials = 3\n", PATH)

    with pytest.raises(UsageError, match=r"names no task") as caught:
        config.require_known_tasks(["cvae"])
    assert "cvae" in caught.value.hint


def test_a_domain_is_one_of_those_known() -> None:
    assert parse_config('[tasks.x]\ndomain = "as_given"', Path("kbench.toml")).settings_for("x", {}).domain == "as_given"
    with pytest.raises(UsageError, match=r'`tasks\.x\.domain` is `"given"`; it must be one of `any`, `as_given`'):
        parse_config('[tasks.x]\ndomain = "given"', Path("kbench.toml"))


def test_an_arithmetic_is_one_of_those_known() -> None:
    assert parse_config('[verify]\narithmetic = "float32"', PATH).settings_for("x", {}).arithmetic == "float32"
    with pytest.raises(UsageError, match="must be one of `any`, `float32`"):
        parse_config('[verify]\narithmetic = "tf32"', PATH)


def test_the_size_of_the_build_cache_is_a_number_of_gigabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KBENCH_CACHE_GB", "1.5")
    assert cache_limit_bytes() == 1_500_000_000
    monkeypatch.setenv("KBENCH_CACHE_GB", "a lot")
    with pytest.raises(UsageError, match="`a lot`"):
        cache_limit_bytes()
