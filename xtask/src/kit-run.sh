#!/usr/bin/env bash
# Runs everything in this folder on the GPUs of this machine, through its own driver.
#
#   run.sh              what libwarpmem finds here, then all programs, the Python tests and `interop`, with PyTorch, CuPy and
#                       RMM: one line each, then `N passed, N failed`
#   run.sh NAME ...     those whose name contains one of the names
#   run.sh bench [ARG]  the benchmarks, each given the arguments
#
# What a program prints goes to a file of its name in $OUT, or in a temporary folder when OUT is not set.
set -uo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
logs="${OUT:-$(mktemp -d)}"
mkdir -p "$logs"
unset WARPMEM_LIBCUDA WARPSIM_TOPOLOGY

if [ "${1:-}" = bench ]; then
    shift
    status=0
    for program in "$here"/bench/*; do
        [ -x "$program" ] || continue
        echo "== $(basename "$program")"
        "$program" "$@" 2>&1 | tee "$logs/bench-$(basename "$program").txt" || status=1
    done
    exit $status
fi

chosen() {
    [ "${#names[@]}" -eq 0 ] && return 0
    local name
    for name in "${names[@]}"; do
        case "$1" in *"$name"*) return 0 ;; esac
    done
    return 1
}

# run_one NAME COMMAND...
run_one() {
    local name="$1" log="$logs/$1.txt" status count
    shift
    timeout --kill-after=10 300 "$@" >"$log" 2>&1 </dev/null
    status=$?
    count="$(grep -Ex '[0-9]+ passed, [0-9]+ failed' "$log" | tail -n 1)"
    if [ "$status" -eq 0 ]; then
        passed=$((passed + 1))
        echo "PASS $name${count:+: $count}"
    else
        failed=$((failed + 1))
        echo "FAIL $name: exit status $status${count:+, $count}"
        tail -n 40 "$log" | sed 's/^/    /'
    fi
    grep -F ' left out: ' "$log" | sed 's/^/    /'
}

names=("$@")
passed=0
failed=0
if chosen warpmem-info; then
    run_one warpmem-info "$here/warpmem-info" --memory
    sed 's/^/    /' "$logs/warpmem-info.txt"
fi
for program in "$here"/bin/*; do
    [ -x "$program" ] || continue
    chosen "$(basename "$program")" && run_one "$(basename "$program")" "$program"
done
if [ -d "$here/python" ] && chosen python; then
    if command -v python3 >/dev/null; then
        export WARPMEM_LIBRARY="$here/lib/libwarpmem.so"
        run_one python python3 -B -m unittest discover -s "$here/python" -v
    else
        echo "left out: python, for want of python3"
    fi
fi
if [ -f "$here/gpu/interop.py" ] && chosen interop; then
    if command -v python3 >/dev/null; then
        export WARPMEM_LIBRARY="$here/lib/libwarpmem.so"
        run_one interop python3 -B "$here/gpu/interop.py"
    else
        echo "left out: interop, for want of python3"
    fi
fi
echo "what they printed is in $logs"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
