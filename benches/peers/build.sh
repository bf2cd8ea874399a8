#!/usr/bin/env bash
# Compiles the contestants of other libraries that Python's packages have brought to this machine.
#
#   build.sh FOLDER [PAIRS]   into the folder; with the benchmark `pairs`, each is tried in it first
#
# Prints `built: FILE` for each, and a line of JSON with the reason for one that cannot take part. Nothing here fails.
set -uo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
out="$1"
pairs="${2:-}"
mkdir -p "$out"

absent() {
    printf '{"absent": "%s", "reason": "%s"}\n' "$1" "$(printf '%s' "$2" | tr -d '"\\' | tr '\n\t' '  ' | cut -c 1-300)"
}

# The folder of a Python package, which is not imported for that.
package() {
    python3 -c 'import importlib.util as u, sys
found = u.find_spec(sys.argv[1])
print(list(found.submodule_search_locations)[0] if found else "")' "$1" 2>/dev/null
}

# The CUDA toolkit: its headers, and the runtime's library.
cuda_include=""
cuda_library=""
nvcc="$(command -v nvcc || true)"
for toolkit in ${nvcc:+"$(dirname "$(dirname "$(readlink -f "$nvcc")")")"} /usr/local/cuda "$(package nvidia)"/cu1[0-9]; do
    [ -z "$cuda_include" ] && [ -f "$toolkit/include/cuda_runtime_api.h" ] &&
        [ -f "$toolkit/include/crt/host_defines.h" ] && cuda_include="$toolkit/include"
    for folder in "$toolkit/lib64" "$toolkit/lib"; do
        if [ -z "$cuda_library" ]; then
            file="$(ls "$folder"/libcudart.so.* 2>/dev/null | head -n 1)"
            [ -n "$file" ] && cuda_library="$file"
        fi
    done
done

# compile LIBRARY SOURCE OPTION...
compile() {
    local library="$1" name="$2" log="$out/$2.log" status
    shift 2
    timeout --kill-after=5 100 "${CXX:-c++}" -std=c++20 -O2 -fPIC -shared -fvisibility=hidden -w -I "$here" -I "$here/.." \
        "$here/$name.cpp" "$@" -isystem "$cuda_include" "$cuda_library" "-Wl,-rpath,$(dirname "$cuda_library")" \
        -o "$out/$name.so" >"$log" 2>&1
    status=$?
    if [ "$status" -ne 0 ]; then
        absent "$library" "it was not compiled, status $status: $(grep -m 1 -i error "$log" || tail -n 1 "$log")"
        return
    fi
    if [ -n "$pairs" ]; then
        WARPMEM_BENCH_JSON=1 WARPMEM_BENCH_PEERS="$out/$name.so" timeout --kill-after=5 60 "$pairs" --smoke --only "$library" \
            >"$log" 2>&1
        status=$?
        if [ "$status" -ne 0 ] || ! grep -q "\"library\": \"$library" "$log"; then
            absent "$library" "it does not run, status $status: $(tail -n 1 "$log")"
            return
        fi
    fi
    echo "built: $out/$name.so"
}

rmm="$(package librmm)"
logger="$(package rapids_logger)"
torch="$(package torch)"
runtime="$cuda_include"
[ -n "$cuda_library" ] || runtime=""

if [ -z "$rmm" ] || [ -z "$logger" ]; then
    absent RMM "Python has no package librmm with rapids_logger"
elif [ -z "$runtime" ]; then
    absent RMM "there is no CUDA runtime to compile with"
else
    # Its headers before the toolkit's, which has older ones of the same names.
    compile RMM rmm -isystem "$rmm/include" -isystem "$rmm/include/rapids" -isystem "$logger/include" \
        -L "$rmm/lib64" -L "$logger/lib64" "-Wl,-rpath,$rmm/lib64" "-Wl,-rpath,$logger/lib64" \
        -lrmm -lrapids_logger >"$out/rmm.said" &
fi
if [ -z "$torch" ]; then
    absent PyTorch "Python has no package torch"
elif [ -z "$runtime" ]; then
    absent PyTorch "there is no CUDA runtime to compile with"
else
    compile PyTorch torch -isystem "$torch/include" -isystem "$torch/include/torch/csrc/api/include" -L "$torch/lib" \
        "-Wl,-rpath,$torch/lib" -lc10_cuda -lc10 >"$out/torch.said" &
fi
wait
cat "$out"/*.said 2>/dev/null
rm -f "$out"/*.said
