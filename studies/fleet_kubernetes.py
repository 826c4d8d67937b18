"""What fleet/kubernetes.sh hands to kubectl, checked against Kubernetes' own schema.

    python studies/fleet_kubernetes.py     with a Python that has kubernetes-validate (108 MB of schemas)

kubectl is a stand-in that knows two nodes with GPUs and prints what it would create. No cluster is needed.
"""

import copy
import os
import subprocess
import tempfile
from pathlib import Path

import kubernetes_validate
import yaml

CHECKOUT = Path(__file__).resolve().parents[1]
KUBECTL = r"""#!/bin/bash
case "$1 $2" in
    "get nodes") printf 'node1 8\nnode2 4\n' ;;
    "create --filename") echo ---; cat ;;
esac
"""


def verdict(job):
    """What the newest schema says of a job. Unknown keys are errors."""
    try:
        version = kubernetes_validate.latest_version()
        kubernetes_validate.validate(job, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return f"refused: {error.message}"
    return f"valid, Kubernetes {version}"


def main():
    """Validate both jobs; then show that the validator would have seen a mistake."""
    with tempfile.TemporaryDirectory() as folder:
        kubectl = Path(folder, "kubectl")
        kubectl.write_text(KUBECTL)
        kubectl.chmod(0o755)
        path = f"{folder}:{os.environ['PATH']}"
        command = [CHECKOUT / "fleet" / "kubernetes.sh", "registry.example/roofbench:1"]
        done = subprocess.run(command, env={**os.environ, "PATH": path}, stdout=subprocess.PIPE, check=True)
    jobs = list(yaml.safe_load_all(done.stdout))
    for job in jobs:
        pod = job["spec"]["template"]["spec"]
        gpus = pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]
        terms = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        print(terms["nodeSelectorTerms"][0]["matchFields"][0]["values"], gpus, "GPUs:", verdict(job))
    misspelt = copy.deepcopy(jobs[0])
    misspelt["spec"]["backofLimit"] = misspelt["spec"].pop("backoffLimit")
    print("with backofLimit:", verdict(misspelt))
    wrong = copy.deepcopy(jobs[0])
    wrong["spec"]["template"]["spec"]["tolerations"] = "all"
    print("with tolerations that are no list:", verdict(wrong))


if __name__ == "__main__":
    main()
