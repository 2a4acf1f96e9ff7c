#!/usr/bin/env bash
# What several threads and processes do at once, checked by tools instead of by luck:
#
#   loom     every order in which two ranks can meet at a lane of the mailbox and at a bell
#   address  AddressSanitizer over the tests of kolo-transport and kolo-comm: no memory is used when it is
#            freed, or past its end
#
#   bash bench/concurrency.sh [loom|address ...]      default: both
#
# AddressSanitizer is for x86_64 Linux and the stable compiler, which is told to take its unstable flags
# (RUSTC_BOOTSTRAP). ThreadSanitizer is not here: it needs a standard library that is instrumented, which has
# to be built from source. With the one that comes with the compiler it takes channels and Arc for races.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}

loom() {
    CARGO_TARGET_DIR="$target/loom" RUSTFLAGS="--cfg loom" cargo test --manifest-path loom/Cargo.toml
}

address() {
    # What a failed group of threads leaves to those that may still read it is never freed: leaks are not
    # looked for.
    export ASAN_OPTIONS=detect_leaks=0
    RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR="$target/asan" RUSTFLAGS="-Zsanitizer=address" \
        cargo test --target x86_64-unknown-linux-gnu -p kolo-transport -p kolo-comm --lib --test threads
}

for tool in "${@:-loom address}"; do
    for each in $tool; do
        echo "== $each"
        "$each"
    done
done
