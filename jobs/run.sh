#!/bin/bash
# One run on Slurm.  Edit the next line and the one that begins with run=, then: sbatch jobs/run.sh
#SBATCH --ntasks=4 --time=00:30:00
#SBATCH --job-name=mpicomp --output=%x-%j.out

run=(--problem "logistic(data=digits, lam=1e-2)" --method "diana(randk(k=0.1))" --rounds 1000 --out runs/digits)

# mpicomp uses the mpirun of its own Python environment, or else of PATH.  For srun with the cluster's MPI:
#export MPICOMP_MPIRUN="srun --mpi=pmix"  # Open MPI; MPICH and its kin want --mpi=pmi2, and `srun --mpi=list` tells

exec mpicomp run --ranks "$SLURM_NTASKS" "${run[@]}"
