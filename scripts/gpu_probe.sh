#!/usr/bin/env bash
# A first look on a machine with a GPU: one candidate of each task verified, with what it says if it is not accepted.
out=${1:?a folder for the results}
export PYTHONUNBUFFERED=1 KBENCH_CACHE_DIR=/tmp/kbench-cache
show() { python3 -c '
import json,sys
for l in open(sys.argv[1]):
    d=json.loads(l); print(d["candidate"],d["device"],d["status"],d["reason"],d["detail"][:400],d["sandbox"],round(d["build_s"],1),round(d["seconds"],1),d["warnings"][:3],[(c["case"],c["status"],c["reason"],round(c["seconds"],2)) for c in d["cases"]], d["output_tail"][-1500:] if d["status"]!="pass" else "", [(t["case"],t["verdict"],t["speedup"]) for t in d.get("timings",[])])' "$1"; }
timeout 60 python3 -m kbench verify cvae/document mixture_reparam/triton --json --timeout 50 >"$out/v.jsonl" 2>"$out/v.err"; tail -c 1500 "$out/v.err"; show "$out/v.jsonl"; echo "$SECONDS"
timeout 60 python3 -m kbench time cvae/document --case default --repeat 20 --json --timeout 50 >"$out/t.jsonl" 2>"$out/t.err"; tail -c 1500 "$out/t.err"; show "$out/t.jsonl"; echo "$SECONDS"
