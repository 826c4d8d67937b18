#!/bin/bash
# A real Slurm of two nodes on this machine, on which fleet/slurm.sbatch and fleet/reframe_fleet.py are tried.
#
#   studies/fleet_slurm.sh FOLDER [reframe]
#
# It needs Debian 12 and root (for `unshare`), and installs nothing: Debian's packages are unpacked below FOLDER, as are
# results and logs. Each node has a host name and processes of its own, so that a node can be killed as a whole. Given
# a `reframe` (pip install reframe-hpc), the ReFrame test runs too. OPTIONS in the environment say what is measured instead
# of the suite `fleet`.
set -euo pipefail
checkout=$(realpath "$(dirname "$0")/..")
folder=$(realpath -m "$1")
reframe=${2:-}
read -ra options <<< "${OPTIONS:---bench-suite fleet}"
mkdir -p "$folder"/{packages,bin,state,log,spool-n1,spool-n2}
cd "$folder"

# ---- Slurm, each program behind a script that finds its libraries and leaves the environment as it is
(
    cd packages
    apt-get download -qq slurmctld slurmd slurm-client slurm-wlm-basic-plugins libslurm38 libmunge2 libhwloc15 \
        libjson-c5 libjwt0 liblua5.3-0 librrd8 libyaml-0-2 libhttp-parser2.9
    for package in *.deb; do dpkg -x "$package" ../root; done
)
libraries=$folder/root/usr/lib/x86_64-linux-gnu
for program in root/usr/sbin/slurm*-wlm root/usr/bin/{sbatch,scancel,scontrol,sinfo,squeue,srun}; do
    printf '#!/bin/sh\nexec /lib64/ld-linux-x86-64.so.2 --library-path %s %s "$@"\n' \
        "$libraries:$libraries/slurm-wlm" "$folder/$program" > "bin/$(basename "$program")"
done
chmod +x bin/*
export PATH=$folder/bin:$PATH SLURM_CONF=$folder/slurm.conf
cat > slurm.conf << END
ClusterName=trial
SlurmctldHost=$(hostname)(127.0.0.1)
SlurmctldPort=16817
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
PluginDir=$libraries/slurm-wlm
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool-%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
SlurmdTimeout=15
ReturnToService=2
MpiDefault=none
SwitchType=switch/none
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName=n1 NodeHostname=$(hostname) NodeAddr=127.0.0.1 Port=16821 CPUs=2 RealMemory=4000
NodeName=n2 NodeHostname=$(hostname) NodeAddr=127.0.0.1 Port=16822 CPUs=2 RealMemory=4000
PartitionName=gpu Nodes=ALL Default=YES MaxTime=60 State=UP
END
declare -A daemon
end() { kill -KILL "${daemon[@]}" 2> /dev/null || true; }
trap end EXIT
start_node() {
    unshare --uts --pid --fork --mount-proc --kill-child sh -c \
        "hostname $1; exec slurmd-wlm -D -N $1 -f $SLURM_CONF -d $folder/bin/slurmstepd-wlm" > "$folder/log/$1" 2>&1 &
    daemon[$1]=$!
    disown # no line of bash when it is killed
}
slurmctld-wlm -D -f "$SLURM_CONF" > log/slurmctld 2>&1 &
daemon[controller]=$!
start_node n1
start_node n2

until_true() { # a command, for at most five minutes
    for _ in $(seq 600); do
        if "$@" > /dev/null 2>&1; then return; fi
        sleep 0.5
    done
    echo "waited five minutes in vain for: $*"
    exit 1
}
both_idle() { [ "$(sinfo -hN -t idle -o %N | wc -l)" -eq 2 ]; }
queue_empty() { [ -z "$(squeue -h)" ]; }
measures() { compgen -G "$1/*/*.journal"; }
show() {
    echo "expected.txt: $(paste -sd ' ' "$1/expected.txt")"
    (cd "$1" && find . -name '*.parquet' -o -name '*.journal')
    (cd "$checkout" && "${PYTHON:-.venv/bin/python}" -m bench fleet "$1" || echo "exit code $?")
}
cd "$checkout"
until_true both_idle

echo "== one job, two nodes"
sbatch --nodes=2 --output="$folder/log/one.out" fleet/slurm.sbatch "$folder/one" "${options[@]}"
until_true queue_empty
show "$folder/one"

echo "== one job a node"
mkdir -p "$folder/each"
sinfo -p gpu -hN -o %N | sort -u > "$folder/each/expected.txt"
while read -r node gpus; do
    sbatch --nodelist="$node" ${gpus:+--gpus-per-node="$gpus"} --output="$folder/log/each-$node.out" \
        fleet/slurm.sbatch "$folder/each" "${options[@]}"
done < "$folder/each/expected.txt"
until_true queue_empty
show "$folder/each"

echo "== one job, two nodes; n2 is killed while it measures"
sbatch --nodes=2 --output="$folder/log/killed.out" fleet/slurm.sbatch "$folder/killed" "${options[@]}"
until_true measures "$folder/killed/n2"
kill -KILL "${daemon[n2]}"
until_true queue_empty
sinfo -N -o '%N %T'
show "$folder/killed"
start_node n2
until_true both_idle

[ -n "$reframe" ] || exit 0
echo "== ReFrame, one job a node"
cat > "$folder/site.py" << END
site_configuration = {
    "systems": [{"name": "trial", "hostnames": [".*"], "partitions": [
        {"name": "gpu", "scheduler": "squeue", "launcher": "local", "environs": ["builtin"]}]}],
    "environments": [{"name": "builtin"}],
}
END
"$reframe" -C "$folder/site.py" --prefix="$folder/reframe" -c fleet/reframe_fleet.py --run --distribute=all \
    -S results="$folder/reframe-results" -S options="${options[*]}"
show "$folder/reframe-results"
