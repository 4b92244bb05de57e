#!/bin/bash
# One run on GPUs, a rank for each.  Edit the next line and the one that begins with run=, then: sbatch jobs/gpu.sh
#SBATCH --ntasks=2 --gpus-per-task=1 --time=00:30:00
#SBATCH --job-name=gpu --output=%x-%j.out

run=(--problem "mlp(data=mnist, hidden=128)" --method "ef21(topk(k=0.01), gamma=0.3)" --workers 2 --rounds 500 --out runs/gpu)

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader

# For srun with the cluster's MPI, see run.sh.
exec mpicomp run --device cuda --ranks "$SLURM_NTASKS" "${run[@]}"
