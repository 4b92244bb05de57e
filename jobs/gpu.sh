#!/bin/bash
# What the kernels cost on a GPU, beside a copy of the vector.  Methods run on CPUs only so far.
# Edit the next line and the one that begins with sizes=, then: sbatch jobs/gpu.sh
#SBATCH --gres=gpu:1 --time=00:15:00
#SBATCH --job-name=gpu --output=%x-%j.out

sizes=(-d 25000000 -d 100000000)

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
exec mpicomp bench kernels --device cuda "${sizes[@]}"
