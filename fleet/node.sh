#!/bin/bash
# Measures every unit of the node that it runs on: each alone, then, if there are several GPUs, all at the same time.
#
#   fleet/node.sh RESULTS [pytest option...]
#
# Result files appear in RESULTS/NODE: a folder for each node, because nodes that begin in the same second give their
# runs the same name, and a lock that keeps two runs apart may not reach over a shared file system. Unless an option says
# what to measure, it is --bench-suite fleet. NODE_NAME is the node's name where its host name is not: in a
# container that is the container's. PYTHON is the Python that has roofbench's packages, .venv/bin/python by default.
set -u
results=$(realpath -m "$1")
shift
[[ $* =~ --bench-(suite|sweep|case) ]] || set -- --bench-suite fleet "$@"
node=${NODE_NAME:-${SLURMD_NODENAME:-$(hostname)}}
cd "$(dirname "$(realpath "$0")")/.." || exit 2
python=${PYTHON:-.venv/bin/python}
status=0
trap 'kill "$!"; wait "$!"; exit 143' TERM # else the measurement would go on without this script

measure() {
    "$python" -m pytest bench/ -p no:cacheprovider --benchmark --bench-device all \
        --bench-results "$results/$node" --bench-tag "node=$node" "$@" &
    wait "$!" || status=$?
}

units=$("$python" -c 'from bench.device.detect import chosen; print(len(chosen("all")))') || exit 2
measure "$@"
[ "$units" -eq 1 ] || measure --bench-concurrent "$@"
exit "$status"
