#!/usr/bin/env bash
# Everything that needs a GPU, in one go: the whole tree verified and timed, the report, the tests marked gpu.
# Usage: scripts/on_gpu.sh FOLDER   (what it prints and stores is copied there)
set -u
out=${1:?a folder for the results}
export PYTHONUNBUFFERED=1 KBENCH_CACHE_DIR=${KBENCH_CACHE_DIR:-/tmp/kbench-cache}
say() { printf '\n== %s (%s s)\n' "$*" "$SECONDS"; }

say machine
python3 -m kbench doctor 2>&1 | tail -n 30
say verify
timeout 280 python3 -m kbench verify 2>&1 | tee "$out/verify.txt" | tail -n 30
say "verify again, built"
timeout 120 python3 -m kbench verify --json >"$out/verify.jsonl" 2>"$out/verify.err"
echo "exit $?"
say time
timeout 240 python3 -m kbench time --repeat 50 2>&1 | tee "$out/time.txt" | tail -n 40
say report
python3 -m kbench report --output "$out/report.md" && head -c 5000 "$out/report.md"
cp results/*.csv "$out/" 2>/dev/null
if [ "${2:-}" = tests ]; then
    say tests
    timeout 240 python3 -m pytest -q -m gpu -x --maxfail=20 2>&1 | tail -n 30
fi
say done
