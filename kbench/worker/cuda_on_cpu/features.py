"""Which features of CUDA are known not to run on the CPU, by the names that a source uses them under?"""

from __future__ import annotations

import re
from collections.abc import Mapping


class UnsupportedFeatureError(RuntimeError):
    """A candidate uses what cannot be run on the CPU; nothing follows about whether it is right."""

    kbench_stage = "unsupported"
    # The first that was raised: a candidate that catches it has not run as it would on a device.
    first: UnsupportedFeatureError | None = None

    def __init__(self, what: str) -> None:
        super().__init__(what)
        UnsupportedFeatureError.first = UnsupportedFeatureError.first or self


_HEADERS: Mapping[str, str] = {
    "mma.h": "tensor-core fragments",
    "cuda/barrier": "asynchronous barriers",
    "cuda/pipeline": "asynchronous pipelines",
    "cuda_pipeline.h": "asynchronous pipelines",
    "cudaTypedefs.h": "bulk copies",
    "cuda_fp8.h": "eight-bit floats",
    "cuda_fp4.h": "four-bit floats",
    "cublas_v2.h": "cuBLAS",
    "cublasLt.h": "cuBLAS",
    "cudnn.h": "cuDNN",
    "cusparse.h": "cuSPARSE",
    "cufft.h": "cuFFT",
    "curand.h": "cuRAND's host side",
    "ATen/cuda/CUDABlas.h": "cuBLAS",
    "ATen/cuda/CUDAGraph.h": "CUDA graphs",
}
_HEADER_FOLDERS: Mapping[str, str] = {
    "cub/": "CUB",
    "thrust/": "Thrust",
    "cute/": "CuTe",
    "cutlass/": "CUTLASS",
    "cuda/": "libcu++",
    "nccl": "NCCL",
}
_NAMES: Mapping[str, str] = {
    "wmma": "tensor-core fragments",
    "nvcuda": "tensor-core fragments",
    "CUtensorMap": "bulk copies",
    "cp_async_bulk_tensor": "bulk copies",
    "cudaTextureObject_t": "textures",
    "cudaSurfaceObject_t": "surfaces",
    "cudaGraph_t": "CUDA graphs",
    "cudaStreamBeginCapture": "CUDA graphs",
    "curandState": "cuRAND's XORWOW generator",
    "curandState_t": "cuRAND's XORWOW generator",
    "curandStateXORWOW_t": "cuRAND's XORWOW generator",
    "curandStateMRG32k3a_t": "cuRAND's MRG32k3a generator",
    "curandStateMtgp32_t": "cuRAND's MTGP32 generator",
    "__cluster_dims__": "clusters of blocks",
    "cudaLaunchKernelExC": "clusters of blocks",
    "setmaxnreg": "register reallocation",
}
_NAME_STARTS: Mapping[str, str] = {
    "tex1D": "textures",
    "tex2D": "textures",
    "tex3D": "textures",
    "surf1D": "surfaces",
    "surf2D": "surfaces",
    "cublas": "cuBLAS",
    "cudnn": "cuDNN",
    "cudaGraph": "CUDA graphs",
    "__nv_fp8": "eight-bit floats",
    "__nvvm_": "NVVM intrinsics",
}


def of_header(name: str) -> str:
    """The unknown feature that an include brings, or nothing."""
    if name in _HEADERS:
        return _HEADERS[name]
    return next((feature for start, feature in _HEADER_FOLDERS.items() if name.startswith(start)), "")


def of_name(name: str) -> str:
    """The unknown feature that a word stands for, or nothing."""
    if name in _NAMES:
        return _NAMES[name]
    return next((feature for start, feature in _NAME_STARTS.items() if name.startswith(start)), "")


# How a C++ compiler says that it does not know a word or a header; its quotes depend on the language it is set to.
_UNDECLARED = re.compile(
    r"[‘'](?P<word>[\w:]+)[^’']*[’'] (?:was not declared|has not been declared|does not name a type|is not a member of)"
    r"|no matching function for call to [‘'](?P<call>[\w:]+)"
    r"|error: (?P<header>[\w./]+): No such file"
)
# What CUDA's own names look like.
_CUDAS = re.compile(r"(?:::)*(?:__|cuda|cu[A-Z]|curand|cooperative_groups|(?:at|c10)::cuda)")


def unknown_word(error: str) -> str:
    """The name of CUDA's, or the header, for the lack of which a translated source does not compile; or nothing."""
    found = _UNDECLARED.search(error)
    if found is None:
        return ""
    if found["header"]:
        return str(found["header"])
    word = found["word"] or found["call"]
    is_of_cuda = _CUDAS.match(word) or re.search(r"is not a member of [‘'](?:::)?(?:at|c10)::cuda", error)
    return str(word) if is_of_cuda else ""
