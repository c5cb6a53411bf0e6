"""How sources become shared objects: `intercept.install` in the candidate, `builder.build` on the other side."""

from __future__ import annotations

from collections.abc import Mapping

from kbench.worker.build import cpp, cuda, cuda_on_cpu
from kbench.worker.build.language import Language
from kbench.worker.build.request import Source

BUILDERS: Mapping[str, Language] = {
    "cpp": cpp,
    "cuda": cuda,
    "cuda_on_cpu": cuda_on_cpu,
}


def language_of(source: Source, *, with_cuda: bool) -> Language:
    """The language of a source, by the ending of its path and whether nvcc is to be used."""
    if source.path.endswith(cuda_on_cpu.ENDINGS):
        return BUILDERS["cuda_on_cpu"]
    return BUILDERS["cuda" if source.is_cuda and with_cuda else "cpp"]
