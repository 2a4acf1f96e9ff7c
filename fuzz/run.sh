#!/usr/bin/env bash
# Fuzzes every decoder of bytes from outside, each for some time or with so many inputs:
#
#   fuzz/run.sh SECONDS [TARGET…]
#   fuzz/run.sh --inputs NUMBER [TARGET…]
#
# libFuzzer, guided by coverage. The marks it follows are an LLVM pass that the stable compiler has as well,
# so neither nightly nor cargo-fuzz is needed (`cargo +nightly fuzz run TARGET` works too, and adds an address
# sanitizer). Needs a C++ compiler for libFuzzer itself. What a run finds on its way stays in
# target/fuzz/found/, what fails in target/fuzz/artifacts/; only seeds are committed (fuzz/corpus/, written by
# the bin `seeds`).
set -euo pipefail
cd "$(dirname "$0")"

usage="usage: fuzz/run.sh SECONDS|--inputs NUMBER [TARGET…]"
case ${1:?$usage} in
--inputs)
    limit=-runs=${2:?$usage}
    shift 2
    ;;
*)
    limit=-max_total_time=$1
    shift
    ;;
esac
if ! command -v c++ >/dev/null; then
    echo "error: no C++ compiler; install one (Debian: apt-get install g++) to build libFuzzer" >&2
    exit 1
fi

host=$(rustc -vV | sed -n 's/^host: //p')
out=$(mkdir -p "${CARGO_TARGET_DIR:-../target}/fuzz" && cd "${CARGO_TARGET_DIR:-../target}/fuzz" && pwd)
export CARGO_TARGET_DIR=$out
if [ $# -eq 0 ]; then
    for file in fuzz_targets/*.rs; do set -- "$@" "$(basename "$file" .rs)"; done
fi
# Naming the host tells what is fuzzed from build scripts.
RUSTC_WRAPPER=$PWD/marked-rustc RUSTFLAGS="--cfg fuzzing" cargo build --quiet --release --target "$host" $(printf -- '--bin %s ' "$@")

for target in "$@"; do
    mkdir -p "$out/found/$target" "$out/artifacts"
    echo "-- $target, ${limit#-}"
    log=$out/$target.log
    if ! "$out/$host/release/$target" "$limit" -timeout=5 -rss_limit_mb=1024 -max_len=8192 \
        -print_final_stats=1 -artifact_prefix="$out/artifacts/$target-" \
        "$out/found/$target" "corpus/$target" >"$log" 2>&1; then
        tail -40 "$log" >&2
        echo "error: $target fails; the input is in $out/artifacts/" >&2
        exit 1
    fi
    grep -E "DONE" "$log" | tail -1
done
