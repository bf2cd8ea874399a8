#!/usr/bin/env bash
# Runs everything in this folder on the GPUs of this machine, through its own driver.
#
#   run.sh              what libwarpmem finds here, then all programs, the Python tests and `interop`, with PyTorch, CuPy and
#                       RMM: one line each, then `N passed, N failed`
#   run.sh NAME ...     those whose name contains one of the names
#   run.sh bench [NAME] the benchmarks of bench/plan.txt, or those named, beside the other libraries that Python has here: their
#                       lines of JSON go to bench.json, all that they print to bench.txt. WARPMEM_BENCH_SECONDS is how long it
#                       may take, 150 if it is not set
#
# What a program prints goes to a file of its name in $OUT, or in a temporary folder when OUT is not set.
set -uo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
logs="${OUT:-$(mktemp -d)}"
mkdir -p "$logs"
unset WARPMEM_LIBCUDA WARPSIM_TOPOLOGY

# What the benchmarks print for people and for `cargo xtask bench --from`.
benchmarks() {
    local limit="${WARPMEM_BENCH_SECONDS:-150}" status=0 name arguments peers left begun ended
    local text="$logs/bench.txt" json="$logs/bench.json" work
    work="$(mktemp -d)"
    : >"$text"
    export WARPMEM_BENCH_JSON=1
    [ -f "$here/peers/libmimalloc_peer.so" ] && export WARPMEM_BENCH_MIMALLOC="$here/peers/libmimalloc_peer.so"
    printf '{"machine": "%s; %s cores of %s", "date": "%s", "command": "gpu-kit/run.sh bench%s"}\n' \
        "$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | paste -sd ';' | tr -d '"\\')" \
        "$(nproc)" "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1 | tr -d '"\\')" "$(date -u +%F)" \
        "${*:+ $*}" >>"$text"
    "$here/peers/build.sh" "$work" "$here/bench/pairs" >"$work/said" 2>&1
    cat "$work/said" >>"$text"
    peers="$(sed -n 's/^built: //p' "$work/said" | paste -sd :)"
    echo "other libraries after $SECONDS s: ${peers:-none}"
    while IFS='|' read -r name arguments _; do
        name="$(echo $name)" arguments="$(echo $arguments)"
        case "$name" in '' | '#'*) continue ;; esac
        if [ "$#" -gt 0 ]; then
            case " $* " in *" $name "*) ;; *) continue ;; esac
        elif [ "$arguments" = - ]; then
            continue
        fi
        [ "$arguments" = - ] && arguments=""
        # Python's libraries come last, and shall not lack the time.
        left=$((limit - SECONDS - 20))
        if [ "$left" -lt 5 ]; then
            echo "left out: $name, for want of time" | tee -a "$text"
            continue
        fi
        begun=$SECONDS
        echo "== $name $arguments" >>"$text"
        # The arguments are several words.
        # shellcheck disable=SC2086
        WARPMEM_BENCH_PEERS="$peers" timeout --kill-after=5 "$((left < 60 ? left : 60))" "$here/bench/$name" $arguments \
            >>"$text" 2>&1 </dev/null
        ended=$?
        echo "$name: $((SECONDS - begun)) s$([ "$ended" -eq 0 ] || echo ", exit status $ended")"
        if [ "$ended" -ne 0 ]; then
            status=1
            tail -n 3 "$text" | sed 's/^/    /'
        fi
    done <"$here/bench/plan.txt"
    begun=$SECONDS left=$((limit - SECONDS))
    if [ "$#" -eq 0 ] && [ "$left" -ge 5 ] && command -v python3 >/dev/null; then
        for name in 1 2 3; do
            "$here/bench/trace" --make "$name" "$work/trace-$name.log"
        done
        timeout --kill-after=5 "$left" python3 -B "$here/peers/python_peers.py" "$work"/trace-*.log >>"$text" 2>&1
        echo "Python's libraries: $((SECONDS - begun)) s"
    fi
    grep -E '^\{"(bench|absent|machine)"' "$text" >"$json"
    rm -rf "$work"
    sed -n 's/^{"absent": "\(.*\)", "reason": "\(.*\)"}$/absent: \1: \2/p' "$json" | sort -u
    echo "$(grep -c '^{"bench"' "$json") results in $json after $SECONDS s"
    return $status
}

if [ "${1:-}" = bench ]; then
    shift
    benchmarks "$@"
    exit
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
