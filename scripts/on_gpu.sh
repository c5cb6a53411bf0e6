#!/usr/bin/env bash
# What needs a GPU, in one go: the whole tree verified and timed, and the report.
# Usage: scripts/on_gpu.sh FOLDER   (what it prints and stores is copied there)
set -u
out=${1:?a folder for the results}
export PYTHONUNBUFFERED=1 KBENCH_CACHE_DIR=${KBENCH_CACHE_DIR:-/tmp/kbench-cache}
show() { python3 -c '
import json, sys
for line in open(sys.argv[1]):
    d = json.loads(line)
    bad = [(c["case"], c["status"], c["reason"], c["detail"][:200]) for c in d["cases"] if c["status"] != "pass"]
    print(d["task"], d["candidate"], d["device"], d["status"], d["reason"], d["detail"][:300], d["sandbox"], round(d["build_s"], 1), round(d["seconds"], 1), len(d["cases"]), "cases", d["warnings"][:2], bad[:4], "" if d["status"] == "pass" else d["output_tail"][-900:])
    for t in d.get("timings", []): print("   ", t["case"], t["verdict"], t["speedup"], t["reference_s"], t["candidate_s"], t["flags"])
' "$1"; }
echo "== verify $SECONDS"; timeout 100 python3 -m kbench verify --timeout 60 --json >"$out/verify.jsonl" 2>"$out/verify.err"; echo "exit $?"; tail -c 600 "$out/verify.err"; show "$out/verify.jsonl"
echo "== time $SECONDS"; timeout 110 python3 -m kbench time --device cuda --repeat 50 --timeout 60 --json >"$out/time.jsonl" 2>"$out/time.err"; echo "exit $?"; tail -c 600 "$out/time.err"; show "$out/time.jsonl"
echo "== report $SECONDS"; python3 -m kbench report --output "$out/report.md"; cp results/*.csv "$out/"; head -c 3500 "$out/report.md"
echo "== end $SECONDS"
