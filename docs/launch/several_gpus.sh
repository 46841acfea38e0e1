#!/usr/bin/env bash
# A run on all GPUs of one machine, one process; CUDA_VISIBLE_DEVICES=0,1,2,3 chooses some of them.
#
#   docs/launch/several_gpus.sh
#   RUN=runs/b docs/launch/several_gpus.sh seed=1                               # KEY=VALUE: settings of the run
set -euo pipefail

CONFIG=${CONFIG:-configs/qwen3-4b.yaml}
RUN=${RUN:-runs/qwen3-4b}
export XLA_PYTHON_CLIENT_MEM_FRACTION=${XLA_PYTHON_CLIENT_MEM_FRACTION:-.95}
export JAX_COMPILATION_CACHE_DIR=${JAX_COMPILATION_CACHE_DIR:-$HOME/.cache/jaxlake}

# Rows are the answers at once on all GPUs: a multiple of the GPUs, and at least student.learn.samples on each.
settings=(mesh.fsdp=-1 mesh.tp=1 student.sampler.rows=64 student.learn.micro_batch=8 "$@")
if [ ! -e "$RUN/config.yaml" ]; then
  python -m rl.plan --config "$CONFIG" "${settings[@]}"
fi
exec python -m rl.train --config "$CONFIG" --run "$RUN" "${settings[@]}"
