#!/usr/bin/env bash
# What a GPU machine's kernel offers the sandbox, every CUDA fault, and the sandbox's tests beside a GPU.
# Usage: scripts/try_sandbox_on_gpu.sh FOLDER   (what it prints is copied there, too)
set -u
out=${1:?a folder for the results}
export PYTHONUNBUFFERED=1 PYTHONPATH=. KBENCH_WARM_S=0 KBENCH_CACHE_DIR=${KBENCH_CACHE_DIR:-/tmp/kbench-cache}
{
    echo "== machine"; id; uname -r; ulimit -Hc -Hu; cat /proc/sys/kernel/core_pattern /proc/self/uid_map /proc/self/cgroup
    grep -E " /(sys/fs/cgroup|dev/shm|tmp|proc)" /proc/mounts; cat /sys/fs/cgroup/cgroup.controllers /sys/fs/cgroup/cgroup.subtree_control 2>&1
    df -h /dev/shm /tmp | cat
    python3 - <<'P'
from kbench.worker import landlock, pids, confine
print("landlock", landlock.abi(), "user", confine.user_of(1), "groups", list(pids._parents()))
group = pids.Group.make(100); print("group", group and group._folder); group and group.remove()
P
    echo "== faults $SECONDS"; timeout 130 python3 benchmarks/faults.py --cuda; echo "exit $?"
    nvidia-smi --query-compute-apps=pid,used_memory --format=csv; ps -e -o pid,ppid,stat,etimes,args | grep -v "ps -e" | tail -15
    echo "== sandbox $SECONDS"; timeout 90 python3 -m pytest -q -p no:cacheprovider -m gpu tests/test_sandboxed.py --durations=4; echo "exit $?"
    echo "== end $SECONDS"; ls -d /tmp/kbench-* /sys/fs/cgroup/kbench-* /sys/fs/cgroup/*/kbench-* 2>/dev/null; ls /dev/shm | head
} 2>&1 | tee "$out/sandbox.txt"
