#!/usr/bin/env bash
# What needs a GPU, in one go: every candidate verified in each case with 20 fresh seeds and timed with all baselines, and the report.
# Usage: scripts/on_gpu.sh FOLDER [ARGUMENTS OF kbench time...]   (what it prints and stores is kept there)
set -u
out=${1:?a folder for the results}; shift
export PYTHONUNBUFFERED=1 KBENCH_CACHE_DIR=${KBENCH_CACHE_DIR:-/tmp/kbench-cache}
mkdir -p "$out"; cp -r references candidates kbench.toml "$out/"
sed -i 's/^baselines = .*/baselines = ["@compile", "@compile-max-autotune", "@cudagraph"]/' "$out/kbench.toml"
show() { python3 -c '
import json, sys
def us(s): return "-" if s is None else f"{s * 1e6:.2f}"
for line in open(sys.argv[1]):
    d = json.loads(line)
    bad = [(c["case"], c["status"], c["reason"], c["detail"][:200]) for c in d["cases"] if c["status"] != "pass"]
    print(d["task"], d["candidate"], d["device"], d["status"], d["reason"], d["detail"][:300], d["sandbox"], round(d["build_s"], 1), round(d["seconds"], 1), len(d["cases"]), "cases", d["warnings"][:2], bad[:4], "" if d["status"] == "pass" else d["output_tail"][-900:])
    for t in d.get("timings", []):
        g = t.get
        print("    %s %s %.3fx [%.3f %.3f] pairs=%d" % (t["case"], t["verdict"], t["speedup"], t["speedup_low"], t["speedup_high"], t["pairs"]), *t["flags"])
        print("       ", *(name + " " + us(g("reference_" + name + "_s")) + " " + us(g("candidate_" + name + "_s")) + ";" for name in ("hot", "graph", "wall", "enqueue", "busy")), "cold", us(t["reference_s"]), us(t["candidate_s"]), "kernels", g("reference_kernels"), g("candidate_kernels"), "cost", g("gpu_s"), g("wall_s"), {k: round(v, 2) for k, v in t["spent_s"].items()})
' "$1"; }
baselines() { python3 -c '
import csv, sys
for r in csv.DictReader(open(sys.argv[1])):
    if r["candidate"].startswith("@"): print(r["task"], r["case"], r["candidate"], r["status"], r["verdict"], r["reason"], r["detail"][:200], "cold", r["reference_s"], r["candidate_s"], "wall", r["candidate_wall_s"], "graph", r["candidate_graph_s"], r["flags"], r["notes"][:200])
' "$1"; }
echo "== verify $SECONDS"; timeout "${VERIFY_S:-900}" python3 -m kbench verify --root "$out" --trials 20 --timeout 600 --json >"$out/verify.jsonl" 2>"$out/verify.err"; echo "exit $?"; tail -c 600 "$out/verify.err"; show "$out/verify.jsonl"
echo "== time $SECONDS"; timeout "${TIME_S:-900}" python3 -m kbench time --root "$out" --device cuda --timeout 400 --json "$@" >"$out/time.jsonl" 2>"$out/time.err"; echo "exit $?"; tail -c 900 "$out/time.err"; show "$out/time.jsonl"; baselines "$out/results/timings.csv"
echo "== report $SECONDS"; python3 -m kbench report --root "$out" --output "$out/report.md"; head -c 2500 "$out/report.md"
echo "== end $SECONDS"
