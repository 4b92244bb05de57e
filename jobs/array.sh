#!/bin/bash
# A comparison as an array of jobs, each with its share of the methods and seeds; the last one to end writes
# the table and the figure.  Step sizes are compared as well: name one method several times in the suite.
# Edit the next line and suite=, then: sbatch jobs/array.sh
#SBATCH --array=1-4 --ntasks=4 --time=02:00:00
#SBATCH --job-name=array --output=%x-%A_%a.out

suite=jobs/demo.toml

#export MPICOMP_MPIRUN="srun --mpi=pmix"  # to start ranks by srun; see run.sh

# If a task was lost, submit the array again when the others have ended: what is finished is kept.
exec mpicomp compare "$suite" --ranks "$SLURM_NTASKS" --part "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_MAX"
