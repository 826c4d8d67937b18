#!/bin/bash
# Measures every unit of the node that it runs on: each alone, then, if there are several GPUs, all at the same time.
#
#   fleet/node.sh RESULTS [pytest option...]
#
# Result files appear in RESULTS/NODE: a folder for each node, because nodes that begin in the same second give their
# runs the same name, and a lock that keeps two runs apart may not reach over a shared file system. Unless an option says
# what to measure, it is --bench-suite fleet. NODE_NAME is the node's name where its host name is not: in a
# container that is the container's. ROOFBENCH_TAGS says more of the node (rack=b12). PYTHON is the Python that has
# roofbench's packages, .venv/bin/python by default.
set -u
results=$(realpath -m "$1")
shift
[[ $* =~ --bench-(suite|sweep|case) ]] || set -- --bench-suite fleet "$@"
node=${NODE_NAME:-${SLURMD_NODENAME:-$(hostname)}}
export ROOFBENCH_TAGS="node=$node${ROOFBENCH_TAGS:+,$ROOFBENCH_TAGS}"
cd "$(dirname "$(realpath "$0")")/.." || exit 2
python=${PYTHON:-.venv/bin/python}
status=0
trap 'kill $(jobs -p); wait; exit 143' TERM # else the measurements would go on without this script

measure() {
    exec "$python" -m pytest bench/ -p no:cacheprovider --benchmark --bench-results "$results/$node" --bench-device "$@"
}

every_end() {
    for job in $(jobs -p); do
        wait "$job" || status=$?
    done
}

names='from bench.device.detect import every_device; print(*[str(each).split()[0] for each in every_device()])'
units=$("$python" -c "$names") || exit 2
for unit in $units; do
    measure "$unit" "$@" &
    every_end
done
export ROOFBENCH_CONCURRENT_GPUS=$(wc -w <<<"$units")
[ "$ROOFBENCH_CONCURRENT_GPUS" -eq 1 ] && exit "$status"
for unit in $units; do
    measure "$unit" "$@" &
done
every_end
exit "$status"
