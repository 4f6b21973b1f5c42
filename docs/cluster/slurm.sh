#!/bin/bash
#SBATCH --job-name=clawrl
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --time=04:00:00
# A Ray cluster for the time of this job, and a run on it: sbatch slurm.sh KEY=VALUE ...
# The run's folder is on the first machine, or wherever run.dir= says.
set -euo pipefail

head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | awk 'NR == 1')
host=$(getent ahostsv4 "$head" | awk '$1 !~ /^127/ && !seen++ { print $1 }')
host=${host:-$(hostname -I | awk '{ print $1 }')}  # its own name may be 127.0.1.1 to a machine
port=$((20000 + SLURM_JOB_ID % 20000))
RAY_AUTH_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
export RAY_AUTH_TOKEN

srun --nodes=1 --ntasks=1 --overlap --cpu-bind=none --nodelist="$head" \
    python -m clawrl_gym.node --head --host="$host" --port="$port" &
for _ in $(seq 60); do
    (: < "/dev/tcp/$host/$port") 2> /dev/null && break
    sleep 1
done
if [ "$SLURM_JOB_NUM_NODES" -gt 1 ]; then
    srun --nodes=$((SLURM_JOB_NUM_NODES - 1)) --ntasks-per-node=1 --overlap --cpu-bind=none --exclude="$head" \
        python -m clawrl_gym.node --address="$host:$port" &
fi

srun --nodes=1 --ntasks=1 --overlap --cpu-bind=none --nodelist="$head" \
    python -m clawrl_gym.train ray.address="$host:$port" "$@"
