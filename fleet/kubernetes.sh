#!/bin/bash
# Makes a job for every node that has NVIDIA GPUs, also for those that are not ready. It begins when all GPUs of its
# node are free.
#
#   fleet/kubernetes.sh IMAGE
#
# IMAGE holds this checkout in /roofbench; the volume claim roofbench-results is there and can be mounted by all nodes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
columns='{range .items[*]}{.metadata.name} {.status.capacity.nvidia\.com/gpu}{"\n"}{end}'
kubectl get nodes --output "jsonpath=$columns" | awk 'NF == 2 && $2 > 0' > "$folder/expected.txt"
kubectl delete configmap roofbench-expected --ignore-not-found
kubectl create configmap roofbench-expected --from-file="$folder/expected.txt"
while read -r node gpus; do
    sed "s|@NODE@|$node|; s|@GPUS@|$gpus|; s|@IMAGE@|$1|" "$(dirname "$0")/kubernetes.yaml" | kubectl create --filename -
done < "$folder/expected.txt"
