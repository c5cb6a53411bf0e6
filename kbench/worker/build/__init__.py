"""How sources become shared objects: `intercept.install` in the candidate, `builder.build` on the other side."""

from __future__ import annotations

from collections.abc import Mapping

from kbench.worker.build import cpp, cuda
from kbench.worker.build.language import Language

BUILDERS: Mapping[str, Language] = {
    "cpp": cpp,
    "cuda": cuda,
}
