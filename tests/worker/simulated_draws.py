"""Samples of a model that draws, right and wrong in known ways, for the tests of `twosample` and their benchmark.

The model: rows of z = mean + deviation * noise, and for each row the log density of its noise.
"""

from __future__ import annotations

import torch

from kbench.worker.twosample import Output

HONEST = ("same", "heavy_tails", "discrete", "dependent_rows", "infinite")
WRONG = (
    "frozen",
    "same_in_every_row",
    "rows_repeated_four_times",
    "two_rows_alike",
    "same_after_every_seed",
    "every_second_call_repeated",
    "cycle_of_32_calls",
    "half_variance",
    "variance_a_tenth_less",
    "uniform",
    "triangular",
    "laplace",
    "neighbours_correlated",
    "antithetic_neighbours",
    "mean_off",
    "last_three_elements_fixed",
    "density_of_another_draw",
    "density_of_another_row",
)


def _noise(kind: str, shape: tuple[int, int, int, int], generator: torch.Generator) -> torch.Tensor:
    """Noise [seeds, calls, rows, columns] of mean 0 and variance 1, or what is wrong with it."""
    seeds, calls, rows, columns = shape

    def normal() -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    def uniform() -> torch.Tensor:
        return torch.rand(shape, generator=generator)

    noise = normal()
    match kind:
        case "heavy_tails":
            return noise / normal().abs().clamp_min(1e-3)
        case "discrete":
            return (uniform() < 0.1).float()
        case "dependent_rows":
            return noise + normal()[:, :, :1]
        case "infinite":
            return torch.where(uniform() < 0.05, torch.inf, noise)
        case "frozen":
            return noise[:1, :1].expand(shape)
        case "same_in_every_row":
            return noise[:, :, :1].expand(shape)
        case "rows_repeated_four_times":
            return noise[:, :, : rows // 4].repeat(1, 1, 4, 1)
        case "two_rows_alike":
            noise[:, :, 1] = noise[:, :, 0]
        case "same_after_every_seed":
            return noise[:, :1].expand(shape)
        case "every_second_call_repeated":
            return noise[:, ::2].repeat_interleave(2, dim=1)
        case "cycle_of_32_calls":
            return noise.reshape(-1, rows, columns)[:32].repeat(seeds * calls // 32, 1, 1).reshape(shape)
        case "half_variance":
            return noise * 0.5**0.5
        case "variance_a_tenth_less":
            return noise * 0.9**0.5
        case "uniform":
            return 12**0.5 * (uniform() - 0.5)
        case "triangular":
            return 6**0.5 * (uniform() + uniform() - 1)
        case "laplace":
            return noise.sign() * -torch.log1p(-uniform()) / 2**0.5
        case "neighbours_correlated":
            noise[..., 1::2] = 0.5 * noise[..., ::2] + 0.75**0.5 * noise[..., 1::2]
        case "antithetic_neighbours":
            noise[..., 1::2] = -noise[..., ::2]
        case "mean_off":
            return noise + 0.05
        case "last_three_elements_fixed":
            noise[:, :, -1, -3:] = 0
    return noise


def _outputs(kind: str, shape: tuple[int, int, int, int], generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    seeds, calls, rows, columns = shape
    noise = _noise(kind, shape, generator)
    mean = torch.linspace(-1, 1, rows * columns).reshape(rows, columns)
    deviation = torch.exp(0.3 * torch.sin(torch.arange(rows * columns).float())).reshape(rows, columns)
    density = -0.5 * noise.square().sum(dim=3)
    if kind == "density_of_another_draw":
        density = -0.5 * torch.randn(shape, generator=generator).square().sum(dim=3)
    if kind == "density_of_another_row":
        density = density.roll(1, dims=2)
    return (mean + deviation * noise).reshape(seeds, calls, -1), density


def sampled(
    kind: str,
    generator: torch.Generator,
    *,
    reference: str = "same",
    seeds: int = 64,
    calls: int = 4,
    rows: int = 16,
    columns: int = 32,
) -> list[Output]:
    """Both outputs of a reference of one kind and a candidate of another."""
    shape = (seeds, calls, rows, columns)
    z, density = _outputs(reference, shape, generator)
    other_z, other_density = _outputs(kind, shape, generator)
    return [
        Output(path="output[0]", reference=z, candidate=other_z, rows=rows),
        Output(path="output[1]", reference=density, candidate=other_density, rows=rows),
    ]
