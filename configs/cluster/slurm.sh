#!/bin/bash
# Ray 2.60.0 and Python 3.11 on every node, in an environment on the shared file system.
# Start: sbatch slurm.sh. At its time limit, and where Slurm preempts it, the job ends the units in work,
# queues itself again and resumes. What became of the run says `prunebench status STORE`.
#SBATCH --job-name=prunebench
#SBATCH --partition=gpu
#SBATCH --account=compression
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=64
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --time=2-00:00:00
#SBATCH --signal=B:USR1@240
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log
# Whole nodes: `ray symmetric-run` refuses to start beside another Ray, and its `ray stop` at the end ends
# every Ray of this user on the node.

set -e
source /shared/venv/bin/activate
set -uo pipefail
cd -- /shared/prunebench
export OMP_NUM_THREADS=8
export MKL_NUM_THREADS=8
export OPENBLAS_NUM_THREADS=8
export PRUNEBENCH_CACHE=/shared/cache/prunebench
export HF_HOME=/shared/cache/huggingface
export HF_HUB_OFFLINE=1
export PYTHONPATH=/shared/prunebench/platform
# Another user of a node cannot use this cluster: the token lies in the home folder.
export RAY_AUTH_MODE=token
ray get-auth-token --generate > /dev/null

# Ten ports of the job's own, from 20000 up to where the system takes its own from; workers ask the system.
port=$(( 20000 + SLURM_JOB_ID % 1276 * 10 ))
# By number: a head whose name means 127.0.1.1 to itself would not know that it is the head.
head=$(getent ahostsv4 "$(hostname)" | awk '$1 !~ /^127\./ { print $1; exit }' || true)
head=${head:-$(hostname -I | awk '{ print $1 }')}
export RAY_ADDRESS="$head:$port"
export RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT=300
# Short: the paths of sockets in it have at most 107 bytes.
temp="/tmp/ray-$SLURM_JOB_ID"
on_nodes=(srun --nodes=4 --ntasks=4 --ntasks-per-node=1)
"${on_nodes[@]}" bash -c 'mkdir -p -m 700 -- "$0" && [ -O "$0" ] && rm -f -- "$0/driver"' "$temp"

# This shell runs on the first node, as the driver does. Only the driver is told to end: Ray has to outlive it.
again=
end() { kill -TERM "$(cat -- "$temp/driver" 2> /dev/null)" 2> /dev/null || true; }
trap 'again=1; end' USR1
trap end TERM INT

"${on_nodes[@]}" --cpus-per-task=64 --gpus-per-node=8 \
    ray symmetric-run --address="$RAY_ADDRESS" --min-nodes=4 \
    --num-cpus=64 --num-gpus=8 --temp-dir="$temp" --disable-usage-stats \
    --object-manager-port=$(( port + 1 )) --node-manager-port=$(( port + 2 )) \
    --dashboard-port=$(( port + 3 )) --dashboard-agent-listen-port=$(( port + 4 )) \
    --dashboard-agent-grpc-port=$(( port + 5 )) --runtime-env-agent-port=$(( port + 6 )) \
    --metrics-export-port=$(( port + 7 )) --ray-client-server-port=$(( port + 8 )) \
    --min-worker-port=0 --max-worker-port=0 \
    -- bash -c 'echo $$ > "$0"; exec "$@"' "$temp/driver" \
    python jobs/benchmark.py configs/benchmark/cluster.yaml --store /shared/stores/qwen3-8b &
step=$!
# A signal ends `wait`, and not the step.
while kill -0 "$step" 2> /dev/null; do wait "$step" || true; done
code=0
wait "$step" || code=$?

"${on_nodes[@]}" rm -rf -- "$temp" || true
# 0, 2, 3 and 4 are a run's own ends; anything else was cut off.
if [[ -n $again && ! $code =~ ^[0234]$ ]]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
