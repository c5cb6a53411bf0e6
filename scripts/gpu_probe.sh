#!/usr/bin/env bash
# A first look on a machine with a GPU: what it is, the tree verified and timed.
out=${1:?a folder for the results}
export PYTHONUNBUFFERED=1 KBENCH_CACHE_DIR=/tmp/kbench-cache
uname -r; nvidia-smi -L; which nvcc g++ ninja; python3 -c 'import torch;print(torch.__version__, torch.version.cuda, torch.__file__)'
echo "== verify $SECONDS"; timeout 200 python3 -m kbench verify --json --timeout 120 >"$out/verify.jsonl" 2>"$out/verify.err"; echo "exit $?"; tail -c 1500 "$out/verify.err"
python3 - "$out/verify.jsonl" <<'P'
import json,sys
for l in open(sys.argv[1]):
    d=json.loads(l); print(d["candidate"],d["device"],d["status"],d["reason"],d["detail"][:300],d["sandbox"],round(d["build_s"],1),round(d["seconds"],1),d["warnings"][:3],[(c["case"],c["status"],round(c["seconds"],2)) for c in d["cases"]], d["output_tail"][-700:] if d["status"]!="pass" else "")
P
echo "== verify again $SECONDS"; time timeout 100 python3 -m kbench verify cvae/document
echo "== time $SECONDS"; timeout 150 python3 -m kbench time --repeat 50 2>&1 | tail -n 30; python3 -m kbench report --output "$out/report.md"; cat results/timings.csv | head -c 6000 > "$out/timings.csv"; head -c 3500 "$out/report.md"
echo "== end $SECONDS"
