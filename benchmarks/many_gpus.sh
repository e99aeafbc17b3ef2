#!/usr/bin/env bash
# The numbers of docs/performance.md for all GPUs of a host, in about 12 minutes on four H100. It needs `detaug[shards]`.
#
#   bash benchmarks/many_gpus.sh OUT_FOLDER
#   PARTS="rates exact" bash benchmarks/many_gpus.sh OUT_FOLDER     # these only
#
# Run it alone. Each part ends by itself and leaves a .txt in OUT_FOLDER; a part that fails or takes too long does not
# stop the others. The most important parts are first.
set -u
source "$(dirname "$0")/steps.sh" "$1" 30
gpus=$("$python" -c "import torch; print(torch.cuda.device_count())")
workers=$(( $(nproc) / gpus - 1 ))
on_all=("$python" -m torch.distributed.run --standalone --local-addr 127.0.0.1 --nproc-per-node "$gpus")

step rates 300 "${on_all[@]}" benchmarks/ranks.py --seconds 2 --bucket \
    --cases ssd300:32 retinanet:16 yolo640:32 ssd300:32:masks yolo640:32:masks
step exact 240 "$python" benchmarks/world_sizes.py --recipes ssd affine mosaic mixing --samplers once
step killed 200 "$python" benchmarks/ranks_training.py
step training 200 "${on_all[@]}" benchmarks/training_rates.py --models ssd300 --workers "$workers" --steps 20 --turns 3
step masks 200 "${on_all[@]}" benchmarks/training_rates.py --models maskrcnn --steps 20 --turns 3
echo "== done, after $SECONDS s"
