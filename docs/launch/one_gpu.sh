#!/usr/bin/env bash
# A run on one GPU, from the root of a checkout with '.[gpu]' installed. Rerun the same command to resume.
#
#   docs/launch/one_gpu.sh
#   CONFIG=configs/small.yaml RUN=runs/small docs/launch/one_gpu.sh seed=1      # KEY=VALUE: settings of the run
set -euo pipefail

CONFIG=${CONFIG:-configs/qwen3-4b-lora.yaml}
RUN=${RUN:-runs/qwen3-4b-lora}
export XLA_PYTHON_CLIENT_MEM_FRACTION=${XLA_PYTHON_CLIENT_MEM_FRACTION:-.95} # JAX takes three quarters otherwise
export JAX_COMPILATION_CACHE_DIR=${JAX_COMPILATION_CACHE_DIR:-$HOME/.cache/jaxlake}

if [ ! -e "$RUN/config.yaml" ]; then # a new run: the script ends here if something does not fit
  python -m rl.plan --config "$CONFIG" "$@"
fi
exec python -m rl.train --config "$CONFIG" --run "$RUN" "$@" # exec: SIGTERM reaches the run, which saves
