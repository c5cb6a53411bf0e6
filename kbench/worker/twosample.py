"""Do two models draw from one distribution? Exact permutation tests over samples of their outputs.

A *unit* is what is exchangeable between the two: the calls that followed one seed. Under the
hypothesis that both models draw alike, which units are whose is a matter of labels; so any statistic of
the labelled units is as likely to stand at any rank among those of relabelled ones, whatever the
distribution is, however its elements depend on one another, and however few units there are. No tail
is approximated (Phipson and Smyth 2010, "Permutation p-values should never be zero").

Which differences are looked for is a table of *questions*; one p-value comes from the largest of all
statistics, each in units of its own permutation distribution (Westfall and Young 1993, maxT).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

# Labellings tried, the given one not counted. The smallest p-value is one over one more than that.
PERMUTATIONS = 999
# Standardised values are cut there: one outlier must not decide for all others.
_CUT = 6.0
# Where the empirical distribution functions are held against each other, in standard deviations.
_QUANTILES = (-2.5, -2.0, -1.5, -1.0, -0.7, -0.4, -0.15, 0.15, 0.4, 0.7, 1.0, 1.5, 2.0, 2.5)
# A feature that varies less between units than this, in its own units, is constant.
_TINY = 1e-9
# Rows, and columns, of an output of which every two are held against each other: the first so many.
_LINES = 128
# Outputs that are tested in pairs: all pairs of the first so many.
_JOINT_OUTPUTS = 4
# Features times labellings at a time: 2**25 floats are 128 MiB.
_CHUNK = 2**25

# What a question asks, in the order in which an answer is told.
MEAN, SPREAD, SHAPE, ELEMENTS, CALLS, JOINT = "mean", "spread", "shape", "elements", "calls", "joint"
ORDER = (MEAN, SPREAD, SHAPE, ELEMENTS, CALLS, JOINT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """The samples of one output: `reference` and `candidate` are float32 [units, calls, elements].

    The elements are `rows` rows of equally many, one after the other. Outputs of one number of rows are held
    against each other row by row.
    """

    path: str
    reference: torch.Tensor
    candidate: torch.Tensor
    rows: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A question that was answered with no: what it asks of which output, and how far off it is.

    `z` is the statistic in standard deviations of its permutation distribution.
    """

    question: str
    path: str
    z: float
    words: str

    @property
    def key(self) -> tuple[str, str]:
        """What the same question about the same output is found by."""
        return (self.question, self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One p-value for all questions together, and those that stand out at `level`."""

    p: float
    level: float
    asked: int
    findings: tuple[Finding, ...] = ()


@dataclass(slots=True)
class _Asked:
    """A question's statistic under every labelling, the given one first."""

    question: str
    path: str
    statistic: torch.Tensor
    words: str = ""
    z: torch.Tensor = field(default_factory=lambda: torch.empty(0))


def compare(
    outputs: Sequence[Output],
    *,
    level: float,
    generator: torch.Generator,
    only: frozenset[tuple[str, str]] | None = None,
    permutations: int = PERMUTATIONS,
) -> Answer:
    """Test whether the two samples of every output, and all outputs together, are of one distribution.

    A right candidate gets p <= `level` with at most that probability. `only` leaves out all questions but
    these. `generator` draws the labellings: it must not be known to who made the samples.

    Raises:
        ValueError: there are no outputs, or too few labellings for the level.
    """
    if not outputs:
        raise ValueError("no outputs to compare")
    if level < 1.0 / (permutations + 1):
        raise ValueError(f"level {level:g} needs more than {permutations} labellings")
    labels = _labellings(outputs[0].reference.shape[0], permutations, generator)
    samples = [_Sample(output) for output in outputs]
    asked: list[_Asked] = []
    for sample in samples:
        asked += _questions(sample, labels)
    for index, one in enumerate(samples[:_JOINT_OUTPUTS]):
        for other in samples[index + 1 : _JOINT_OUTPUTS]:
            asked += _joint_questions(one, other, labels)
    if only is not None:
        asked = [question for question in asked if (question.question, question.path) in only]
    return _answer(asked, level)


def _answer(asked: list[_Asked], level: float) -> Answer:
    if not asked:
        return Answer(p=1.0, level=level, asked=0)
    for question in asked:
        spread = question.statistic.std(correction=0)
        centred = question.statistic - question.statistic.mean()
        question.z = centred / spread if float(spread) > 0.0 else torch.zeros_like(centred)
    worst = torch.stack([question.z for question in asked]).amax(dim=0)
    count = len(worst)
    p = float((worst >= worst[0] * (1 - 1e-6)).sum()) / count
    if p > level:
        return Answer(p=p, level=level, asked=len(asked))
    # What stands out by itself at this level, at least the worst.
    limit = min(float(worst.sort(descending=True).values[max(0, math.floor(level * count) - 1)]), float(worst[0]))
    found = [Finding(question=q.question, path=q.path, z=float(q.z[0]), words=q.words) for q in asked if float(q.z[0]) >= limit]
    best: dict[tuple[str, str], Finding] = {}
    for finding in found:
        if finding.key not in best or best[finding.key].z < finding.z:
            best[finding.key] = finding
    ordered = sorted(best.values(), key=lambda finding: (ORDER.index(finding.question), -finding.z))
    return Answer(p=p, level=level, asked=len(asked), findings=tuple(ordered))


def _labellings(units: int, permutations: int, generator: torch.Generator) -> torch.Tensor:
    """[labellings, 2 units]: +1 for the candidate's, -1 for the reference's; the first row is the given one."""
    given = torch.cat([-torch.ones(units), torch.ones(units)])
    ranks = torch.rand(permutations, 2 * units, generator=generator).argsort(dim=1)
    return torch.cat([given.unsqueeze(0), given[ranks]])


class _Sample:
    """One output's samples, the reference's units first, standardised element by element over both."""

    def __init__(self, output: Output) -> None:
        self.output = output
        self.path = output.path
        both = torch.cat([output.reference, output.candidate])
        self.units, self.calls, self.elements = both.shape
        flat = _finite(both.reshape(self.units * self.calls, self.elements).double())
        self.mean = flat.mean(dim=0)
        self.sd = flat.std(dim=0, correction=0)
        # [all calls, elements]
        self.u = ((flat - self.mean) / self.sd.clamp_min(1e-300)).clamp(-_CUT, _CUT).float()
        squares = self.u.square()
        self.square_scale = float(squares.std(correction=0).clamp_min(1e-6))
        self.v = (squares - squares.mean(dim=0)) / self.square_scale

    def by_unit(self, features: torch.Tensor) -> torch.Tensor:
        """Average features [all calls, n] over the calls of each unit: [units, n]."""
        return features.reshape(self.units, self.calls, -1).mean(dim=1)

    def gram(self, features: torch.Tensor) -> torch.Tensor:
        """How alike every two calls are: [all calls, all calls], products averaged over elements."""
        return features @ features.T / features.shape[1]

    def row_means(self, features: torch.Tensor) -> torch.Tensor:
        """Average features over each row's elements, and standardise over the calls: [all calls, rows]."""
        return _standard(features.reshape(len(features), self.output.rows, -1).mean(dim=2))

    def pairs(self, *, of_rows: bool) -> torch.Tensor | None:
        """How alike every two rows, or columns, of a call are: [units, pairs]; None where there are no two."""
        grid = self.u.reshape(len(self.u), self.output.rows, -1)
        lines = (grid if of_rows else grid.transpose(1, 2))[:, :_LINES]
        count = lines.shape[1]
        if count < 2:  # noqa: PLR2004
            return None
        above = torch.triu_indices(count, count, offset=1)
        return self.by_unit(torch.bmm(lines, lines.transpose(1, 2))[:, above[0], above[1]] / lines.shape[2])


def _finite(flat: torch.Tensor) -> torch.Tensor:
    """Infinities become values just beyond the largest finite ones, NaN one above those."""
    if bool(torch.isfinite(flat).all()):
        return flat
    largest = torch.where(torch.isfinite(flat), flat, 0.0).abs().amax(dim=0) * 2 + 1
    clean = torch.nan_to_num(flat, nan=math.inf, posinf=math.inf, neginf=-math.inf)
    return torch.where(torch.isfinite(clean), clean, torch.sign(clean) * largest)


def _questions(sample: _Sample, labels: torch.Tensor) -> list[_Asked]:
    """All that is asked of one output by itself."""
    path, u, v = sample.path, sample.u, sample.v
    means, squares = sample.by_unit(u), sample.by_unit(v)
    ratio = _ratio_of_spreads(sample)
    asked = [
        *_element_wise(MEAN, path, means, labels, _mean_words(sample, means)),
        *_element_wise(SPREAD, path, squares, labels, f"its variance is {ratio:.3g} times the reference's"),
    ]
    shapes = torch.stack([u.pow(3).mean(dim=1), u.pow(4).mean(dim=1), *((u <= q).float().mean(dim=1) for q in _QUANTILES)], dim=1)
    asked.append(
        _Asked(SHAPE, path, _linear(sample.by_unit(shapes), labels).amax(dim=1), "its values are distributed otherwise, with like mean and variance")
    )
    for features, words in ((u, "one call's draws return in another"), (v, "the sizes of one call's draws return in another")):
        gram = sample.gram(features)
        across, within = _between_calls(gram, sample)
        asked.append(_Asked(CALLS, path, _linear(across, labels).amax(dim=1), f"{words}, after another seed"))
        if sample.calls > 1:
            asked.append(_Asked(CALLS, path, _linear(within, labels).amax(dim=1), f"{words}, under one seed"))
        if sample.elements > 1:
            alike, _ = _between_calls(gram.square(), sample)
            asked.append(_Asked(ELEMENTS, path, _linear(alike, labels).amax(dim=1), "its elements depend on one another otherwise"))
    for of_rows in (True, False):
        if (pairs := sample.pairs(of_rows=of_rows)) is not None:
            name = "rows" if of_rows else "columns"
            asked += _element_wise(ELEMENTS, path, pairs, labels, f"its {name} depend on one another otherwise")
    return asked


def _element_wise(question: str, path: str, features: torch.Tensor, labels: torch.Tensor, words: str) -> list[_Asked]:
    """Three statistics of features [units, elements]: the worst element, all elements together, and their common sign."""
    worst, total = [], []
    scaled = _scaled(features)
    step = max(1, _CHUNK // max(1, features.shape[1]))
    for start in range(0, len(labels), step):
        t = (labels[start : start + step] @ scaled).abs_()
        worst.append(t.amax(dim=1))
        total.append(t.square_().mean(dim=1))
    common = _linear(features.mean(dim=1, keepdim=True), labels).amax(dim=1)
    return [_Asked(question, path, statistic, words) for statistic in (torch.cat(worst), torch.cat(total), common)]


def _between_calls(gram: torch.Tensor, sample: _Sample) -> tuple[torch.Tensor, torch.Tensor]:
    """How alike the calls of a unit are to those of other units, and to one another: two features [units, 1].

    The mean over pairs within the candidate's less that within the reference's is linear in the labels:
    (sum of row sums of the one) - (sum of row sums of the other), as pairs across both cancel.
    """
    blocks = gram.reshape(sample.units, sample.calls, sample.units, sample.calls)
    own = blocks.diagonal(dim1=0, dim2=2)  # [calls, calls, units]
    same_call = own.diagonal(dim1=0, dim2=1).sum(dim=1)
    own_sum = own.sum(dim=(0, 1))
    across = (blocks.sum(dim=(1, 2, 3)) - own_sum) / (max(1, sample.units - 1) * sample.calls**2)
    within = (own_sum - same_call) / max(1, sample.calls * (sample.calls - 1))
    return across.unsqueeze(1), within.unsqueeze(1)


def _joint_questions(one: _Sample, other: _Sample, labels: torch.Tensor) -> list[_Asked]:
    """Do two outputs of a call belong together as the reference's do?"""
    path = f"{one.path} with {other.path}"
    words = "the two outputs of one call do not belong together as the reference's do"
    products = []
    grams = []
    shared = one.output.rows == other.output.rows > 1
    for mine in (one.u, one.v):
        gram = one.gram(mine)
        whole = _standard(mine.mean(dim=1, keepdim=True))
        rows = one.row_means(mine) if shared else None
        for theirs in (other.u, other.v):
            grams.append(_between_calls(gram * other.gram(theirs), one)[0])
            products.append(whole * _standard(theirs.mean(dim=1, keepdim=True)))
            if rows is not None:
                products.append((rows * other.row_means(theirs)).mean(dim=1, keepdim=True))
    features = torch.cat([one.by_unit(torch.cat(products, dim=1)), torch.cat(grams, dim=1)], dim=1)
    return [_Asked(JOINT, path, _linear(features, labels).amax(dim=1), words)]


def _standard(features: torch.Tensor) -> torch.Tensor:
    centred = features - features.mean(dim=0)
    return centred / centred.std(dim=0, correction=0).clamp_min(1e-6)


def _scaled(features: torch.Tensor) -> torch.Tensor:
    """Features [units, n] such that a product with labels is a t-like statistic; a constant one gives 0."""
    centred = features - features.mean(dim=0)
    spread = centred.square().sum(dim=0).sqrt()
    scale = features.abs().amax(dim=0).clamp_min(1.0)
    return torch.where(spread > _TINY * scale * math.sqrt(len(features)), centred / spread.clamp_min(1e-30), 0.0)


def _linear(features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """|difference of means| of features [units, n] under each labelling, in standard errors: [labellings, n]."""
    return (labels @ _scaled(features)).abs()


def _mean_words(sample: _Sample, means: torch.Tensor) -> str:
    half = sample.units // 2
    off = means[half:].mean(dim=0) - means[:half].mean(dim=0)
    worst = int(off.abs().argmax())
    return f"its mean is off by {float(off[worst]):+.3g} standard deviations at worst, {float(off.mean()):+.3g} on average"


def _ratio_of_spreads(sample: _Sample) -> float:
    half = sample.units // 2 * sample.calls
    reference, candidate = (part.var(dim=0).mean() for part in (sample.u[:half], sample.u[half:]))
    return float(candidate / reference.clamp_min(1e-12))
