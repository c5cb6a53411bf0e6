"""CUDA candidates from the command line where there is no GPU: one build, several candidates that use it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

REFERENCE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2 + 1

def get_inputs():
    return [torch.randn(3, 100)]

def get_init_inputs():
    return []
"""
CANDIDATE = '''
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

__global__ void right(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2.0f * x[i] + 1.0f;
}

__global__ void too_far(const float* x, float* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = 2.0f * x[i] + 1.0f;  // too far
}

__global__ void in_order(const float* x, float* y, int n) {
  __shared__ int count, first;
  if (threadIdx.x == 0) count = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = 2.0f * x[i] + 1.0f;
  if (atomicAdd(&count, 1) == 0) first = threadIdx.x;
  __syncthreads();
  if (threadIdx.x == 0) y[0] += first;
}

at::Tensor run(const at::Tensor& x, int64_t which) {
  TORCH_CHECK(x.is_cuda() && x.device().type() == at::kCUDA, "x must be on a device");
  const c10::cuda::CUDAGuard guard(x.device());
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  at::Tensor y = at::empty_like(x);
  const int n = x.numel();
  if (which == 0) right<<<(n + 63) / 64, 64, 0, stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
  if (which == 1) too_far<<<(n + 63) / 64, 64, 0, stream>>>(x.data_ptr<float>(), y.data_ptr<float>());
  if (which == 2) right<<<1, 2048, 0, stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
  if (which == 3) in_order<<<1, 32, 0, stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
  return y;
}
"""
ops = load_inline(name="probe", cpp_sources="at::Tensor run(const at::Tensor& x, int64_t which);", cuda_sources=CUDA, functions=["run"])

class ModelNew(torch.nn.Module):
    def forward(self, x):
        assert x.is_cuda and x.device.type == "cuda" and torch.cuda.current_stream().cuda_stream == 0
        return ops.run(x.to("cuda"), 0)
'''
UNSUPPORTED = '''
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <mma.h>
"""
ops = load_inline(name="probe", cpp_sources="at::Tensor run(const at::Tensor& x);", cuda_sources=CUDA, functions=["run"])

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return ops.run(x)
'''
RUN = 'return ops.run(x.to("cuda"), 0)'
CANDIDATES = {
    "right": CANDIDATE,
    "too_far": CANDIDATE.replace(RUN, "return ops.run(x, 1)"),
    "hides_it": CANDIDATE.replace(RUN, "try:\n            ops.run(x, 1)\n        except RuntimeError:\n            pass\n        return x * 2 + 1"),
    "refused": CANDIDATE.replace(RUN, "ops.run(x, 2)\n        return x * 2 + 1"),
    "by_order": CANDIDATE.replace(RUN, "return ops.run(x, 3)"),
    "unsupported": UNSUPPORTED,
    "falls_back": UNSUPPORTED.replace("ops = load", "try:\n    ops = load")
    .replace('["run"])', '["run"])\nexcept RuntimeError:\n    pass')
    .replace("ops.run(x)", "x * 2 + 1"),
}

DRAWING = REFERENCE.replace("x * 2 + 1", "x + torch.randn_like(x)")
DROPPING = REFERENCE.replace("x * 2 + 1", "torch.nn.functional.dropout(x, 0.5)")
DRAWS = {
    "on_the_device": CANDIDATE.replace(RUN, 'return x + torch.randn(x.shape, device="cuda")'),
    "on_the_host": CANDIDATE.replace(RUN, "return x + torch.randn(x.shape)"),
}
DROPS = {
    "likewise": CANDIDATE.replace(RUN, "return torch.nn.functional.dropout(x, 0.5)"),
    "otherwise": CANDIDATE.replace(RUN, "return 2 * x * (torch.rand_like(x) < 0.5)"),
}
TASKS = {"probe": (REFERENCE, CANDIDATES), "drawing": (DRAWING, DRAWS), "dropping": (DROPPING, DROPS)}


def kbench(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kbench", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "KBENCH_CACHE_DIR": str(cwd / "cache"), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def objects(run: subprocess.CompletedProcess[str]) -> dict[str, dict[str, object]]:
    return {found["candidate"]: found for found in map(json.loads, run.stdout.splitlines())}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree with one reference and all candidates."""
    root = tmp_path_factory.mktemp("tree")
    (root / "references").mkdir()
    (root / "kbench.toml").touch()
    for task, (reference, candidates) in TASKS.items():
        (root / "references" / f"{task}.py").write_text(reference)
        (root / "candidates" / task).mkdir(parents=True)
        for name, text in candidates.items():
            (root / "candidates" / task / f"{name}.py").write_text(text)
    return root


@pytest.fixture(scope="module")
def verdicts(tree: Path) -> dict[str, dict[str, object]]:
    """All of them verified in one run."""
    return objects(kbench("verify", "--json", "--device", "cpu", "--seed", "5", cwd=tree))


def line_of(text: str, words: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), 1) if words in line)


def test_a_right_candidate_passes_and_the_record_says_where(verdicts: dict[str, dict[str, object]]) -> None:
    assert (verdicts["right"]["status"], verdicts["right"]["device"]) == ("pass", "cuda-on-cpu")


@pytest.mark.parametrize("candidate", ["too_far", "hides_it"])
def test_a_fault_fails_with_the_line_in_the_candidates_file(candidate: str, verdicts: dict[str, dict[str, object]]) -> None:
    found = verdicts[candidate]

    assert (found["status"], found["reason"]) == ("fail", "cuda:global-bounds")
    assert f"{candidate}.py:{line_of(CANDIDATE, '// too far')}: `too_far`" in str(found["detail"])


def test_a_launch_that_a_device_refuses_fails(verdicts: dict[str, dict[str, object]]) -> None:
    found = verdicts["refused"]

    assert (found["status"], found["reason"]) == ("fail", "run")
    assert "invalid configuration argument" in str(found["detail"])


def test_what_hangs_on_the_order_of_threads_shows(verdicts: dict[str, dict[str, object]]) -> None:
    assert (verdicts["by_order"]["status"], verdicts["by_order"]["reason"]) == ("fail", "values")


@pytest.mark.parametrize("candidate", ["unsupported", "falls_back"])
def test_what_cannot_run_here_is_skipped_with_feature_and_line(candidate: str, verdicts: dict[str, dict[str, object]]) -> None:
    found = verdicts[candidate]

    assert (found["status"], found["reason"]) == ("skip", "")
    assert f"tensor-core fragments ({candidate}.py:{line_of(CANDIDATES[candidate], 'mma.h')})" in str(found["detail"])


def test_both_sides_draw_as_on_a_device(verdicts: dict[str, dict[str, object]]) -> None:
    assert verdicts["on_the_device"]["status"] == "pass"
    assert (verdicts["on_the_host"]["status"], verdicts["on_the_host"]["reason"]) == ("fail", "values")


def test_nobody_fails_by_draws_that_are_not_those_of_a_device(verdicts: dict[str, dict[str, object]]) -> None:
    assert verdicts["likewise"]["status"] == "pass"
    assert verdicts["otherwise"]["status"] == "skip"
    assert "drawn as on a device" in str(verdicts["otherwise"]["detail"])


def test_it_is_accepted_and_never_timed(tree: Path, verdicts: dict[str, dict[str, object]]) -> None:
    assert verdicts["right"]["status"] == "pass"
    (found,) = objects(kbench("time", "probe/right", "--json", "--device", "cpu", cwd=tree)).values()

    assert (found["status"], found["device"]) == ("pass", "cuda-on-cpu")
    assert not (tree / "results" / "timings.csv").exists()


def test_time_that_the_cpu_lacks_is_held_against_nobody(tree: Path) -> None:
    (found,) = objects(kbench("verify", "probe/right", "--json", "--device", "cpu", "--timeout", "0.05", cwd=tree)).values()

    assert (found["status"], found["reason"]) == ("skip", "")
    assert "`--timeout` allows more" in str(found["detail"])
