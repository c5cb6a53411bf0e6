"""Record what compute-sanitizer says of kernels with known faults, and of the shipped ones, on a machine with a GPU.

Usage: python3 scripts/record_sanitizer.py FOLDER
Each tool runs on each candidate; the tool's text and XML go to FOLDER/records.tar.gz. Tests of the parser
(tests/sanitizer/) read a selection of them. Also tried: a target that confines itself before it loads a candidate.
"""

import concurrent.futures
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FAULTS = ROOT / "tests/sanitizer/candidates"
CVAE, MIXTURE = ROOT / "references/cvae.py", ROOT / "references/mixture_reparam.py"
CANDIDATES = {
    "faulty": (FAULTS / "reference.py", FAULTS / "faulty.py"),
    "unmended": (CVAE, FAULTS / "unmended_decoder.py"),
    "cvae_document": (CVAE, ROOT / "candidates/cvae/document.py"),
    "cvae_fused": (CVAE, ROOT / "candidates/cvae/fused.py"),
    "mixture_document": (MIXTURE, ROOT / "candidates/mixture_reparam/document.py"),
    "mixture_single": (MIXTURE, ROOT / "candidates/mixture_reparam/single_launch.py"),
    "mixture_triton": (MIXTURE, ROOT / "candidates/mixture_reparam/triton.py"),
}
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
DRIVER = r"""
import importlib.util, json, os, sys, time
started = time.time()
threads_at_start = len(os.listdir("/proc/self/task"))
import torch
def load(path):
    spec = importlib.util.spec_from_file_location("m_" + os.path.basename(path)[:-3], path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
reference = load(sys.argv[1])
small = {"cvae": {"batch_size": 16}, "mixture_reparam": {"batch_size": 16}}.get(os.path.basename(sys.argv[1])[:-3], {})
torch.manual_seed(0)
inputs = [t.cuda() for t in reference.get_inputs(**small)]
model = load(sys.argv[2]).ModelNew(*reference.get_init_inputs()).cuda()
ready = time.time()
with torch.no_grad():
    for _ in range(2):
        model(*inputs)
torch.cuda.synchronize()
print("driver", threads_at_start, "threads at start,", len(os.listdir("/proc/self/task")), "at the end,", round(ready - started, 1), "s to load,",
      round(time.time() - ready, 1), "s to call", flush=True)
if os.environ.get("KBENCH_SHOW"):
    print(*[f"{n}: {os.readlink('/proc/self/fd/' + n)}" for n in sorted(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd/" + n)], sep="\n")
    print({k: v for k, v in os.environ.items() if k.startswith(("LD_", "NV_", "CUDA_INJ", "NVTX", "TMP", "HOME"))})
    print([l.strip() for l in open("/proc/net/unix") if "nv_target" in l])
"""
# Confines itself, then becomes the driver.
ENTER = r"""
import os, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from kbench.worker import confine, landlock, seccomp
what = sys.argv[3].split("+")
scratch = Path(sys.argv[2])
policy = confine.Policy(scratch=scratch, readable=tuple(map(Path, sys.argv[4].split(":"))), hidden=(), gpu=True)
grants = list(confine._grants(policy))
confine._move_into(scratch)
confine._limit(policy, None)
confine._drop_privileges(None, scratch)
if "landlock" in what:
    print(confine._restrict_files(grants, landlock.NEWEST_ABI), flush=True)
if "seccomp" in what:
    seccomp.forbid(hold_signals=False, hold_truncation=False)
print("entered", what, len(os.listdir("/proc/self/task")), "threads", flush=True)
os.execv(sys.executable, [sys.executable, *sys.argv[5:]])
"""


def main(out: Path) -> None:
    started = time.time()
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    print(tool, subprocess.run([tool, "--version"], capture_output=True, text=True).stdout.replace("\n", " "))
    work = Path("/tmp/kbench-record")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    (work / "driver.py").write_text(DRIVER)
    (work / "enter.py").write_text(ENTER)
    env = {
        **os.environ,
        "TORCH_EXTENSIONS_DIR": str(work / "extensions"),
        "TRITON_CACHE_DIR": str(work / "triton"),
        "NVCC_APPEND_FLAGS": "-lineinfo",
        "TORCH_CUDA_ARCH_LIST": "9.0",
        "CUDA_HOME": os.environ.get("CUDA_HOME", "/usr/local/cuda"),
        "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
        "TMPDIR": str(work),
    }

    def command(name: str) -> list[str]:
        reference, candidate = CANDIDATES[name]
        return [sys.executable, str(work / "driver.py"), str(reference), str(candidate)]

    def call(label: str, arguments: list[str], limit_s: float, **extra: str) -> tuple[str, float, int]:
        begun = time.time()
        try:
            done = subprocess.run(arguments, env={**env, **extra}, capture_output=True, text=True, timeout=limit_s, cwd=work)
            code, words = done.returncode, done.stdout + done.stderr
        except subprocess.TimeoutExpired as late:
            code, words = -1, f"late: {late.stdout!r} {late.stderr!r}"
        (work / f"{label}.out").write_text(words)
        return words, time.time() - begun, code

    with concurrent.futures.ThreadPoolExecutor(7) as pool:
        for name, (words, spent, code) in zip(CANDIDATES, pool.map(lambda name: call(f"{name}.plain", command(name), 110), CANDIDATES), strict=True):
            print(f"plain {name}: exit {code}, {spent:.1f} s: {words[-300:]!r}")
    print(f"built at {time.time() - started:.0f} s", flush=True)

    def sanitize(job: tuple[str, str, str, list[str]]) -> tuple[str, str, float, int]:
        label, name, which, more = job
        files = ["--save", str(work / f"{label}.xml"), "--xml", "--log-file", str(work / f"{label}.txt")]
        words, spent, code = call(label, [tool, "--tool", which, *files, *more, *command(name)], 75)
        return label, words, spent, code

    def confined(kind: str) -> tuple[str, str, float, int]:
        scratch = work / f"scratch-{kind}"
        scratch.mkdir()
        readable = ":".join(map(str, (work / "driver.py", work / "extensions", FAULTS, ROOT / "kbench")))
        label = f"confined-{kind}"
        enter = [sys.executable, str(work / "enter.py"), str(ROOT), str(scratch), kind, readable, *command("faulty")[1:]]
        words, spent, code = call(
            label,
            [tool, "--tool", "memcheck", "--log-file", str(work / f"{label}.txt"), "--save", str(work / f"{label}.xml"), "--xml", *enter],
            75,
            TMPDIR=str(scratch),
            KBENCH_SHOW="1",
        )
        return label, words, spent, code

    jobs = [(f"{name}.{which}", name, which, []) for which in TOOLS for name in CANDIDATES]
    jobs += [
        ("faulty.mangled", "faulty", "memcheck", ["--demangle", "no", "--strip-paths", "no", "--padding", "64", "--report-api-errors", "no"]),
        ("faulty.hazards", "faulty", "racecheck", ["--racecheck-report", "all"]),
        ("unmended.simple", "unmended", "racecheck", ["--demangle", "simple", "--target-processes", "application-only"]),
        ("faulty.long", "faulty", "memcheck", ["--backtrace-short", "no", "--print-limit", "2"]),
    ]
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        tries = [pool.submit(confined, kind) for kind in ("none", "landlock", "seccomp", "landlock+seccomp")]
        for label, words, spent, code in [*pool.map(sanitize, jobs), *(a.result() for a in tries)]:
            text = work / f"{label}.txt"
            log = text.read_text().splitlines() if text.exists() else ["(no log)"]
            print(f"{label}: exit {code}, {spent:.1f} s, {len(log)} lines, last {log[-1][:150]!r}, said {words[-260:]!r}", flush=True)
    print(f"done at {time.time() - started:.0f} s", flush=True)
    for label in ("faulty.memcheck", "unmended.racecheck"):
        for ending in ("txt", "xml"):
            path = work / f"{label}.{ending}"
            print("=====", path.name, "\n", path.read_text()[:1800] if path.exists() else "none")
    with tarfile.open(out / "records.tar.gz", "w:gz") as archive:
        for path in sorted([*work.glob("*.txt"), *work.glob("*.xml"), *work.glob("*.out")]):
            if path.stat().st_size < 4 * 2**20:
                archive.add(path, path.name)
            else:
                print("left out", path.name, path.stat().st_size)
    (out / "facts.json").write_text(json.dumps({"tool": tool}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
