#!/bin/bash
# The models of docs/images.md, three seeds each, and their tables: bits a pixel beside other codecs, and how well
# the score tells images apart.  Half an hour on four cores.  Here: bash jobs/images.sh; with Slurm: sbatch
# jobs/images.sh.  Once before: mpicomp data fetch fashion_mnist fashion_mnist.t mnist mnist.t
#SBATCH --ntasks=4 --time=02:00:00
#SBATCH --job-name=images --output=%x-%j.out

ranks=${SLURM_NTASKS:-4}
dense="ef21sgdm(C=identity, gamma=1, eta=0.1, batch=512)"

set -euo pipefail
for set in fashion_mnist mnist; do
    for seed in 0 1 2; do
        train=(mpicomp images train "$set" --seed "$seed" --ranks "$ranks")
        "${train[@]}" --hidden 48 --out "runs/images/$set-topk1-$seed"
        "${train[@]}" --hidden 48 --method "$dense" --stages 1:200,5:5000,1:2000,0.2:1000 --out "runs/images/$set-dense-$seed"
        "${train[@]}" --kind full --out "runs/images/$set-full-$seed"
    done
done
for set in fashion_mnist mnist; do
    for seed in 0 1 2; do
        for of in fashion_mnist.t mnist.t; do
            mpicomp bench images "$of" --model "runs/images/$set-topk1-$seed"
        done
        other=$([ "$set" = mnist ] && echo fashion_mnist || echo mnist)
        mpicomp images score "$set.t" "$other.t" --local "runs/images/$set-topk1-$seed" --full "runs/images/$set-full-$seed" --training "$set"
    done
done
