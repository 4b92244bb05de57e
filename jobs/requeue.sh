#!/bin/bash
# A run that takes longer than a job may: two minutes before its time is up it saves its state and queues
# itself again.  Edit the next line and the one that begins with run=, then: sbatch jobs/requeue.sh
# As an array of seeds: sbatch --array=0-4 jobs/requeue.sh
#SBATCH --ntasks=4 --time=04:00:00
#SBATCH --job-name=long --output=%x-%j.out --open-mode=append
#SBATCH --requeue --signal=B:USR1@120

seed=${SLURM_ARRAY_TASK_ID:-0}
run=(--problem "logistic(data=digits, lam=1e-2)" --method "diana(randk(k=0.1))" --rounds 1000000 --out "runs/long-$seed")

#export MPICOMP_MPIRUN="srun --mpi=pmix"  # to start ranks by srun; see run.sh

mpicomp run --ranks "$SLURM_NTASKS" --seed "$seed" --checkpoint-every 1000 --resume-or-start "${run[@]}" &
job=$!

# USR1: time is nearly up.  TERM: the job is cancelled, and is not to come back, or preempted, and Slurm
# itself brings it back.  Either way the run is asked to end after a round, with its state saved.
again=yes
trap 'kill -USR1 "$job"' USR1
trap 'again=no; kill -USR1 "$job"' TERM

while kill -0 "$job" 2>/dev/null; do wait "$job"; done # a signal ends a wait
wait "$job"
status=$?

if [ "$status" -eq 130 ] && [ "$again" = yes ]; then # 130: ended because it was asked to, to be resumed
    # This task of an array, and not the whole of it, which has the number of its last task.
    task=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
    scontrol requeue "${task:-$SLURM_JOB_ID}"
fi
exit "$status"
