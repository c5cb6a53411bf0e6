#!/usr/bin/env bash
# The clock on a GPU: its tests, and every measurement of the shipped candidates with all baselines.
# Usage: scripts/clock_on_gpu.sh FOLDER   (what it prints and stores is copied there)
set -u
out=${1:?a folder for the results}
export PYTHONUNBUFFERED=1 KBENCH_CACHE_DIR=${KBENCH_CACHE_DIR:-/tmp/kbench-cache}
show() { python3 -c '
import json, sys
def us(s): return "-" if s is None else f"{s * 1e6:.2f}"
for line in open(sys.argv[1]):
    d = json.loads(line)
    if d["status"] != "pass": print(d["task"], d["candidate"], d["status"], d["reason"], d["detail"][:300], d["output_tail"][-600:])
    for t in d.get("timings", []):
        g = t.get
        print("%s/%s %s %s %.3fx [%.3f %.3f] pairs=%d" % (d["task"], d["candidate"], t["case"], t["verdict"], t["speedup"], t["speedup_low"], t["speedup_high"], t["pairs"]), *t["flags"])
        for name in ("", "_hot", "_graph", "_stream", "_wall", "_enqueue", "_busy", "_span"):
            if g(f"reference{name}_s") is not None or g(f"candidate{name}_s") is not None: print("    %-8s" % (name or "cold"), us(g(f"reference{name}_s")), us(g(f"candidate{name}_s")))
        names = ("floor_s", "hot_speedup", "graph_speedup", "reference_kernels", "candidate_kernels", "reference_memory_bytes", "candidate_memory_bytes", "reference_energy_j", "candidate_energy_j", "sol_s", "sol_bound", "sm_clock_hz", "mem_clock_hz", "throttle", "gpu_users", "gpu_busy_before", "temperature_c", "gpu_s", "wall_s", "self_check", "order_effect", "noise", "delta")
        print("   ", {n: g(n) for n in names if g(n) is not None})
        print("    spent", {k: round(v, 3) for k, v in t["spent_s"].items()}, "work", g("work"), "notes", t["notes"])
        print("    kernels", [(n[:40], round(s * 1e6, 2)) for n, s in (g("kernels") or {}).get("candidate", [])][:12])
' "$1"; }
cp -r references candidates kbench.toml "$out/" && sed -i 's/^baselines = .*/baselines = ["@compile", "@cudagraph"]/' "$out/kbench.toml"
echo "== tests $SECONDS"; timeout 110 python3 -m pytest -q -m gpu tests/worker/timing -p no:cacheprovider --durations=3 >"$out/tests.txt" 2>&1; tail -30 "$out/tests.txt"; cp /tmp/pytest-of-*/pytest-*/tree0/out.jsonl "$out/tests.jsonl"; cp /tmp/pytest-of-*/pytest-*/tree0/results/timings.csv "$out/tests.csv"
echo "== time $SECONDS"; timeout 150 python3 -m kbench time --root "$out" --device cuda --timeout 60 --json >"$out/time.jsonl" 2>"$out/time.err"; echo "exit $?"; tail -c 1200 "$out/time.err"; show "$out/time.jsonl"
cp -r "$KBENCH_CACHE_DIR"/ceilings "$out/"; cat "$KBENCH_CACHE_DIR"/ceilings/*; echo
python3 - "$out/results/timings.csv" <<'P'
import csv, sys
for r in csv.DictReader(open(sys.argv[1])):
    if r["candidate"].startswith("@"): print(r["task"], r["case"], r["candidate"], r["status"], r["verdict"], r["reason"], r["detail"][:200], r["reference_s"], r["candidate_s"], r["candidate_graph_s"], r["candidate_stream_s"], r["candidate_kernels"], r["flags"], r["notes"][:200])
P
echo "== report $SECONDS"; python3 -m kbench report --root "$out" --output "$out/report.md"; head -c 2500 "$out/report.md"
echo "== end $SECONDS"
