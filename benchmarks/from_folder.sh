#!/usr/bin/env bash
# Measure `detaug train PATH` on the drawn dataset of `detaug demo`: the seconds of all steps, and the AP of the 12
# validation images, or their mIoU. DEVICE is cpu (two cores), or cuda; options of the command may follow.
#   benchmarks/from_folder.sh cpu
#   benchmarks/from_folder.sh cpu --model lraspp_mobilenet_v3_large
set -euo pipefail
device=${1:?cpu or cuda}
shift
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -c "from detaug.demo.shapes import make_voc; make_voc('$folder/VOC', 60, 0)"
start=$(date +%s)
if [ "$device" = cpu ]; then
    export OMP_NUM_THREADS=2
    taskset -c 0,1 python3 -m detaug train "$folder/VOC" -o "$folder/run" --device cpu "$@"
else
    python3 -m detaug train "$folder/VOC" -o "$folder/run" --device "$device" "$@"
fi
echo "$(($(date +%s) - start)) s in all"
