"""What does each idea in the CUDA candidates bring? Take one out at a time and time the rest (needs a GPU).

    python3 benchmarks/kernel_steps.py [--repeat 50]

Each step is the shipped candidate with one edit to its source, verified and timed by `kbench time` like any other, in a
tree of its own; the table gives cold and graph times against the shipped candidate's in the same run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CASES = ("default", "large")


@dataclass(frozen=True)
class Step:
    """`edits` are (text, what takes its place); each text stands once in the shipped candidate's source."""

    task: str
    candidate: str
    name: str
    case: str
    means: str
    edits: tuple[tuple[str, str], ...] = ()


STEPS = (
    Step("mixture_reparam", "single_launch", "shipped", "default", "as shipped"),
    Step("mixture_reparam", "single_launch", "shipped", "large", "as shipped"),
    Step("mixture_reparam", "single_launch", "scalar_loads", "default", "one float a load", (("  int width = 4;", "  int width = 1;"),)),
    Step("mixture_reparam", "single_launch", "scalar_loads", "large", "one float a load", (("  int width = 4;", "  int width = 1;"),)),
    Step(
        "mixture_reparam",
        "single_launch",
        "streamed",
        "default",
        "inputs read when needed, not kept in registers",
        (("const bool fits = a.logits != nullptr &&", "const bool fits = false &&"),),
    ),
    Step(
        "mixture_reparam",
        "single_launch",
        "own_draws",
        "large",
        "a Philox call for each number, one sample a block",
        (("const bool shares_draws = a.noise_draw", "const bool shares_draws = false && a.noise_draw"),),
    ),
    Step(
        "mixture_reparam",
        "single_launch",
        "no_prefetch",
        "large",
        "four samples a block, the next fetched only when the last is read",
        (("  fetch(0);\n  fetch(1);\n", "  fetch(0);\n"), ("__pipeline_wait_prior(1)", "__pipeline_wait_prior(0)"), ("fetch(j + 2);", "fetch(j + 1);")),
    ),
    Step("cvae", "fused", "shipped", "default", "as shipped"),
    Step("cvae", "fused", "shipped", "large", "as shipped"),
    Step(
        "cvae",
        "fused",
        "unstaged",
        "default",
        "weights read where they are used, not copied to shared memory at once",
        (("} else if (device.fits(staged_bytes)) {", "} else if (false) {"),),
    ),
    Step("cvae", "fused", "cluster4", "default", "clusters of four blocks", (("constexpr int kCluster = 8;", "constexpr int kCluster = 4;"),)),
    Step(
        "cvae",
        "fused",
        "tiles_only",
        "default",
        "the path of large batches",
        (("device.fits(tile_bytes) && batch >= 32 * kTile", "device.fits(tile_bytes)"),),
    ),
    Step(
        "cvae",
        "fused",
        "clusters_only",
        "large",
        "the path of small batches",
        (("device.fits(tile_bytes) && batch >= 32 * kTile", "false"),),
    ),
    Step(
        "cvae",
        "fused",
        "eight_by_eight",
        "large",
        "8 x 8 products a thread, twice the threads",
        (("constexpr int kTileThreads = 128;", "constexpr int kTileThreads = 256;"), ("constexpr int kSamples = 16;", "constexpr int kSamples = 8;")),
    ),
    Step(
        "cvae",
        "fused",
        "late_targets",
        "large",
        "targets read after the last layer's products, not before",
        (
            ("if (layer == kOutput) subtract_wanted<kColumns>(sums, part, start);", ""),
            (
                "else if (layer == kOutput) use_output<kColumns>(sums, part);",
                "else if (layer == kOutput) subtract_wanted<kColumns>(sums, part, start), use_output<kColumns>(sums, part);",
            ),
        ),
    ),
)


def main() -> int:
    """Write the tree, time it, print the table; 1 if a step was not accepted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=50)
    repeat = parser.parse_args().repeat
    with tempfile.TemporaryDirectory() as folder:
        found = time_tree(write_tree(Path(folder)), repeat)
    print(f"{'task':16} {'case':8} {'step':14} {'cold us':>9} {'graph us':>9} {'vs shipped':>10}  means")
    failures = 0
    for step in STEPS:
        times = found.get((step.task, step.name, step.case))
        shipped = found.get((step.task, "shipped", step.case))
        if times is None or shipped is None:
            failures += 1
            print(f"{step.task:16} {step.case:8} {step.name:14} not accepted  {step.means}")
            continue
        graph = f"{times['graph'] * 1e6:9.2f}" if times["graph"] else f"{'':9}"
        print(f"{step.task:16} {step.case:8} {step.name:14} {times['cold'] * 1e6:9.2f} {graph} {times['cold'] / shipped['cold']:10.3f}  {step.means}")
    return int(failures > 0)


def write_tree(root: Path) -> Path:
    """Lay out references and steps in `root`; an edit whose text is not there once is an error."""
    (root / "kbench.toml").write_text("[time]\nbaselines = []\n")
    shutil.copytree(ROOT / "references", root / "references")
    for step in STEPS:
        source = (ROOT / "candidates" / step.task / f"{step.candidate}.py").read_text()
        for text, replacement in step.edits:
            if source.count(text) != 1:
                raise SystemExit(
                    f"error: {step.task}/{step.candidate} has {source.count(text)} places {text!r}\nhint: mend step {step.name} in {__file__}"
                )
            source = source.replace(text, replacement)
        path = root / "candidates" / step.task / f"{step.name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return root


def time_tree(root: Path, repeat: int) -> dict[tuple[str, str, str], dict[str, float]]:
    """Run `kbench time` and collect the medians in seconds by task, step and case."""
    command = [sys.executable, "-m", "kbench", "time", "--root", str(root), "--device", "cuda", "--repeat", str(repeat), "--json"]
    for case in CASES:
        command += ["--case", case]
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env={**os.environ, "PYTHONPATH": path})
    found = {}
    for line in run.stdout.splitlines():
        result = json.loads(line)
        if result["status"] != "pass":
            print(f"{result['task']}/{result['candidate']}: {result['status']} {result['reason']} {result['detail']}", file=sys.stderr)
        for timing in result.get("timings", []):
            times = {"cold": timing["candidate_s"], "graph": timing.get("candidate_graph_s") or timing.get("extra", {}).get("candidate_graph_s") or 0.0}
            found[result["task"], result["candidate"], timing["case"]] = times
    return found


if __name__ == "__main__":
    sys.exit(main())
