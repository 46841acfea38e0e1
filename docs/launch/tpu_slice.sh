#!/usr/bin/env bash
# A run on a slice of spot TPUs, from any machine with gcloud. The run's directory and the compiled programs are on an
# NFS disk, which all hosts of the slice mount and which outlives it. Rerun the same command to resume.
#
#   SHARE=10.0.0.2:/runs docs/launch/tpu_slice.sh
#   SHARE=10.0.0.2:/runs TYPE=v6e-8 VERSION=v2-alpha-tpuv6e docs/launch/tpu_slice.sh seed=1   # KEY=VALUE: settings
#
# Exit status: 0 if the run is finished, 75 if it was stopped; gcloud's if the slice was taken away.
set -euo pipefail

NAME=${NAME:-jaxlake}
ZONE=${ZONE:-us-west4-a}
TYPE=${TYPE:-v5litepod-16}
VERSION=${VERSION:-v2-alpha-tpuv5-lite}
SHARE=${SHARE:?HOST:/EXPORT of an NFS disk, such as a Filestore instance in the network of the slice}
MOUNT=${MOUNT:-/mnt/share}
SOURCE=${SOURCE:-https://github.com/jaxlake/jaxlake}
CONFIG=${CONFIG:-configs/qwen3-4b-v5e-8.yaml}
RUN=${RUN:-runs/qwen3-4b}

tpu() { gcloud compute tpus tpu-vm "$1" "$NAME" --zone="$ZONE" "${@:2}"; }
everywhere() { tpu ssh --worker=all --command="$1"; }

state=$(tpu describe --format='value(state)' 2> /dev/null || true)
if [ "$state" = PREEMPTED ]; then # a slice that was taken away cannot be started again
  tpu delete --quiet
  state=
fi
if [ -z "$state" ]; then
  tpu create --accelerator-type="$TYPE" --version="$VERSION" --spot
fi

everywhere "
  set -e
  if ! mountpoint -q '$MOUNT'; then
    sudo apt-get -qq -y install nfs-common
    sudo mkdir -p '$MOUNT' && sudo mount '$SHARE' '$MOUNT' && sudo chmod a+rwx '$MOUNT'
  fi
  [ -e jaxlake ] || git clone --quiet --depth 1 '$SOURCE' jaxlake
  python3 -m pip install --quiet --user uv
  [ -e venv ] || ~/.local/bin/uv venv --quiet --python 3.12 venv # the image's own Python is older than 3.11
  ~/.local/bin/uv pip install --quiet --python venv/bin/python './jaxlake[tpu]'"

run="$MOUNT/$RUN"
everywhere "
  cd jaxlake
  export JAX_COMPILATION_CACHE_DIR='$MOUNT/cache' HF_HOME='$MOUNT/huggingface'
  exec ../venv/bin/python -m rl.train $(printf '%q ' --config "$CONFIG" --run "$run" mesh.fsdp=-1 "$@")"
tpu ssh --worker=0 --command="grep -qs '\"stage\": \"finished\"' $run/checkpoints/*/progress/metadata" || exit 75
