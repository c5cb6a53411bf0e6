"""Draw docs/kernels.svg from docs/kernels.csv: the time of each step beside the floor, on a logarithmic axis.

    python3 scripts/draw_kernels.py

The CSV has a line for each bar: group, step, time_us, floor_us; the floor is that of the group.
"""

from __future__ import annotations

import csv
import math
from html import escape
from itertools import groupby
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"
LEFT, RIGHT, WIDTH = 250, 90, 900
BAR, GAP, TITLE = 16, 6, 34


def main() -> None:
    """Read the table and write the picture."""
    with open(DOCS / "kernels.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    times = [float(row["time_us"]) for row in rows] + [float(row["floor_us"]) for row in rows]
    low, high = math.floor(math.log10(min(times))), math.log10(max(times))

    def x(time_us: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (math.log10(time_us) - low) / (high - low)

    parts, y = [], 8
    for group, members in groupby(rows, key=lambda row: row["group"]):
        bars = list(members)
        parts.append(f'<text class="title" x="8" y="{y + 18}">{escape(group)}</text>')
        y += TITLE - 6
        top = y
        for row in bars:
            time_us = float(row["time_us"])
            parts.append(f'<text x="{LEFT - 8}" y="{y + 12}" text-anchor="end">{escape(row["step"])}</text>')
            parts.append(f'<rect class="bar" x="{LEFT}" y="{y}" width="{x(time_us) - LEFT:.1f}" height="{BAR}"/>')
            parts.append(f'<text x="{x(time_us) + 6:.1f}" y="{y + 12}">{time_us:.3g} µs</text>')
            y += BAR + GAP
        floor_us = float(bars[0]["floor_us"])
        parts.append(f'<line class="floor" x1="{x(floor_us):.1f}" x2="{x(floor_us):.1f}" y1="{top - 4}" y2="{y}"/>')
        parts.append(f'<text class="note" x="{x(floor_us) + 4:.1f}" y="{y + 8}">floor {floor_us:.3g} µs</text>')
        y += TITLE - 12
    style = (
        "text{font:12px sans-serif;fill:#222}.title{font-weight:bold}.note{font-size:10px;fill:#a33}.bar{fill:#5b7fa6}.floor{stroke:#a33;stroke-width:2}"
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" role="img"><title>Time of each step against the floor</title>'
    (DOCS / "kernels.svg").write_text(
        "\n".join([head, f"<style>{style}</style>", '<rect width="100%" height="100%" fill="#fff"/>', *parts, "</svg>"]) + "\n"
    )


if __name__ == "__main__":
    main()
