"""How often does `draws = "distribution"` refuse a right candidate, and how often does it find a wrong one?

    python3 benchmarks/distribution.py [--runs 2000] [--power 20]

Simulated samples (tests/worker/simulated_draws.py), the tests that `kbench verify` uses. A right candidate is refused by
one sample as often as the level says; `kbench verify` asks two independent samples, each at the root of what is allowed.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from kbench.worker import distribution, twosample  # noqa: E402 - the tree it lies in, installed or not


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000, help="simulated runs of each kind of right candidate")
    parser.add_argument("--power", type=int, default=20, help="simulated runs of each kind of wrong candidate")
    wanted = parser.parse_args()
    spec = importlib.util.spec_from_file_location("simulated_draws", ROOT / "tests/worker/simulated_draws.py")
    assert spec is not None
    assert spec.loader is not None
    simulated = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(simulated)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(1)
    print(f"right candidates, {wanted.runs} runs each: refused by one sample at level 0.1 and 0.02 (three standard errors)")
    for kind in simulated.HONEST:
        p = [
            twosample.compare(
                simulated.sampled(kind, generator, reference=kind, seeds=8, calls=2, rows=4, columns=3),
                level=0.02,
                generator=generator,
                permutations=99,
            ).p
            for _ in range(wanted.runs)
        ]
        shares = [(sum(one <= level for one in p) / len(p), 3 * math.sqrt(level * (1 - level) / len(p))) for level in (0.1, 0.02)]
        print(f"  {kind:28} " + "  ".join(f"{share:.4f} ± {error:.4f}" for share, error in shares))
    level = math.sqrt(distribution.FALSE_ALARMS / distribution.INPUT_SETS)
    print(f"wrong candidates, one case: found in both samples, of {wanted.power}, with so many rows of 32")
    for kind in simulated.WRONG:
        found = [sum(_is_found(simulated, kind, rows, level, generator) for _ in range(wanted.power)) for rows in (4, 16, 64)]
        print(f"  {kind:28} " + "  ".join(f"{rows} rows: {count}" for rows, count in zip((4, 16, 64), found, strict=True)))


def _is_found(simulated: object, kind: str, rows: int, level: float, generator: torch.Generator) -> bool:
    """Whether a sample refuses, and another one confirms it."""
    sampled = simulated.sampled  # type: ignore[attr-defined]
    size = {"seeds": distribution.SEEDS, "calls": distribution.CALLS, "rows": rows, "columns": 32}
    first = twosample.compare(sampled(kind, generator, **size), level=level, generator=generator)
    if first.p > level:
        return False
    only = frozenset(finding.key for finding in first.findings)
    return twosample.compare(sampled(kind, generator, **size), level=level, generator=generator, only=only).p <= level


if __name__ == "__main__":
    main()
