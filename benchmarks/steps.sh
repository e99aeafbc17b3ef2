# For gpu.sh and many_gpus.sh, which source it with the folder of the results as $1 and the lines to show as $2: go to
# the root of the project, and define `step NAME SECONDS COMMAND...`, which leaves NAME.txt and NAME.err in the folder.
out=$(mkdir -p "$1" && cd "$1" && pwd); shown=$2
cd "$(dirname "${BASH_SOURCE[0]}")/.."; export PYTHONPATH="$PWD:${PYTHONPATH:-}"
python=$(command -v python3)
step() {
    local name=$1 limit=$2; shift 2
    [[ -z ${PARTS:-} || " $PARTS " == *" $name "* ]] || return 0
    echo "== $name, after $SECONDS s"
    timeout "$limit" "$@" >"$out/$name.txt" 2>"$out/$name.err" || echo "== $name failed"
    tail -n "$shown" "$out/$name.txt"
}
