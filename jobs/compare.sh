#!/bin/bash
# A comparison on Slurm.  Edit the next line and suite=, then: sbatch jobs/compare.sh
# The table and the figure are in runs/NAME OF THE SUITE.  Submitted again, it goes on where it was.
#SBATCH --ntasks=4 --time=02:00:00
#SBATCH --job-name=compare --output=%x-%j.out

suite=jobs/demo.toml

#export MPICOMP_MPIRUN="srun --mpi=pmix"  # to start ranks by srun; see run.sh

exec mpicomp compare "$suite" --ranks "$SLURM_NTASKS" --resume-or-start
