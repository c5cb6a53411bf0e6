"""The statistics of `draws = "distribution"`, held against simulation."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from kbench.worker import twosample


def _beside(name: str) -> ModuleType:
    path = Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


simulated = _beside("simulated_draws")


@pytest.mark.parametrize("kind", simulated.HONEST)
def test_right_candidates_are_refused_no_more_often_than_the_level_says(kind: str) -> None:
    generator = torch.Generator().manual_seed(20260101)
    runs, level = 120, 0.1
    refused = 0
    for _ in range(runs):
        outputs = simulated.sampled(kind, generator, reference=kind, seeds=8, calls=2, rows=4, columns=3)
        refused += twosample.compare(outputs, level=level, generator=generator, permutations=39).p <= level
    # Exactly `level` on average; four standard deviations above it come once in 30,000 seeds.
    assert refused <= level * runs + 4 * math.sqrt(level * (1 - level) * runs)
    assert refused >= 1


@pytest.mark.parametrize("kind", simulated.WRONG)
def test_wrong_noise_is_found_at_the_size_that_is_sampled(kind: str) -> None:
    generator = torch.Generator().manual_seed(7)
    answer = twosample.compare(simulated.sampled(kind, generator), level=0.002, generator=generator)
    assert answer.p <= 0.002
    assert answer.findings


@pytest.mark.parametrize(
    ("kind", "question", "path"),
    [
        ("mean_off", "mean", "output[0]"),
        ("half_variance", "spread", "output[0]"),
        ("uniform", "shape", "output[0]"),
        ("rows_repeated_four_times", "elements", "output[0]"),
        ("antithetic_neighbours", "elements", "output[0]"),
        ("same_after_every_seed", "calls", "output[0]"),
        ("density_of_another_draw", "joint", "output[0] with output[1]"),
    ],
)
def test_what_is_wrong_is_named(kind: str, question: str, path: str) -> None:
    generator = torch.Generator().manual_seed(8)
    answer = twosample.compare(simulated.sampled(kind, generator), level=0.002, generator=generator)
    assert (question, path) in {finding.key for finding in answer.findings}


def test_only_some_questions_can_be_asked_again() -> None:
    generator = torch.Generator().manual_seed(9)
    outputs = simulated.sampled("density_of_another_draw", generator)
    assert twosample.compare(outputs, level=0.01, generator=generator, only=frozenset({("mean", "output[0]")})).p > 0.01
    again = twosample.compare(outputs, level=0.01, generator=generator, only=frozenset({("joint", "output[0] with output[1]")}))
    assert again.p <= 0.01


def test_level_that_the_labellings_cannot_reach_is_refused() -> None:
    generator = torch.Generator().manual_seed(10)
    outputs = simulated.sampled("same", generator, seeds=8, calls=2)
    with pytest.raises(ValueError, match="needs more than 99 labellings"):
        twosample.compare(outputs, level=1e-3, generator=generator, permutations=99)


def test_constant_elements_say_nothing() -> None:
    generator = torch.Generator().manual_seed(11)
    same = torch.ones(16, 2, 6)
    answer = twosample.compare([twosample.Output(path="o", reference=same, candidate=same, rows=2)], level=0.01, generator=generator)
    assert answer.p > 0.5
