#!/usr/bin/env bash
# The numbers of docs/performance.md that need a GPU, in about 20 minutes on one H200, less where processes start quickly.
#
#   bash benchmarks/gpu.sh OUT_FOLDER [FILE.json IMAGES]
#   PARTS="ssd300 retinanet" bash benchmarks/gpu.sh OUT_FOLDER     # these only
#
# Without FILE.json: 8,000 files of 400 JPEGs of VOC's sizes, drawn by `detaug.demo`. Run it alone. Each part ends by
# itself and leaves a .txt in OUT_FOLDER, and a .json with the complete turns; a part that fails or takes too long
# does not stop the others. The most important parts are first.
set -u
json=${2:-}; images=${3:-}
source "$(dirname "$0")/steps.sh" "$1" 12
bench() { local name=$1 limit=$2; shift 2; step "$name" "$limit" "$python" -m detaug bench "$json" "$images" --device cuda --json "$out/$name.json" "$@"; }

if [ -z "$json" ]; then
    work=$(mktemp -d); json=$work/many/train.json; images=$work/many/images
    "$python" -c "import sys; from detaug.demo import make_voc; make_voc(sys.argv[1], 400)" "$work/VOC"
    "$python" -m detaug convert-voc "$work/VOC" -o "$work/one.json"
    "$python" benchmarks/copy_images.py "$work/one.json" "$work/VOC/JPEGImages" -o "$work/many" --copies 20
fi
main="--only loader --only decode"
rates() { local name=$1 limit=$2; shift 2; step "$name" "$limit" "$python" benchmarks/settings.py "$json" "$images" --device cuda --seconds 1 --turns 5 "$@"; }
rates ssd300 280 --batch-size 32 64 128 256
rates retinanet 80 --preset retinanet --batch-size 16
rates yolo640 80 --preset yolo640 --batch-size 32
bench ssd_128 240 --batch-size 128 --seconds 1.5 --turns 3 $main --only "by hand" --only cached --chart "$out/ssd_128.png"
rates four_cores 120 --batch-size 128 --cores 4
step epochs 60 "$python" benchmarks/epochs.py "$json" "$images" --epochs 20 --batch-size 128
step memory 200 "$python" -m pytest -q -s -m gpu tests/loading/test_loader_life.py
$python -c "import torchvision" 2>/dev/null && bench torchvision 150 --batch-size 32 --seconds 4 --turns 1 --only loader --only torchvision --workers 8 --workers 16
step planning 30 "$python" benchmarks/planning.py
step tune_128 110 "$python" -m detaug tune "$json" "$images" --device cuda --batch-size 128 --seconds 45 -o "$out/settings.json"
echo "== done, after $SECONDS s"
