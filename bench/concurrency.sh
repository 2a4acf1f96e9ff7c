#!/usr/bin/env bash
# What several threads and processes do at once, checked by tools instead of by luck:
#
#   loom     every order in which two ranks can meet at a lane of the mailbox and at a bell
#   address  AddressSanitizer over kolo-comm's tests: no memory is used after it has been freed, or past its end
#   thread   ThreadSanitizer over kolo-comm's tests whose ranks are threads: no two of them race for memory
#
#   bash bench/concurrency.sh [loom|address|thread ...]      default: all three
#
# The sanitizers are for x86_64 Linux and the stable compiler, which is told to take its unstable flags
# (RUSTC_BOOTSTRAP). Its standard library is not instrumented, because that would need its source. So a race in
# there is not seen, and what it synchronises by itself would look like a race: `bench/tsan.txt` names that.
# ThreadSanitizer knows nothing of other processes and of pages mapped twice: of the transports it sees THREADS.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}

loom() {
    CARGO_TARGET_DIR="$target/loom" RUSTFLAGS="--cfg loom" cargo test --manifest-path loom/Cargo.toml
}

sanitized() { # name, flags, then arguments of cargo test
    local name=$1 flags=$2
    shift 2
    RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR="$target/$name" RUSTFLAGS="-Zsanitizer=$flags" \
        cargo test --target x86_64-unknown-linux-gnu -p kolo-comm "$@"
}

address() {
    # What a failed group of threads leaves to those that may still read it is never freed: no leaks are sought.
    export ASAN_OPTIONS=detect_leaks=0
    sanitized address "address" --examples
    sanitized address "address" --lib --test collectives --test failures
}

thread() {
    export TSAN_OPTIONS="halt_on_error=1 suppressions=$PWD/bench/tsan.txt"
    sanitized thread "thread -Cunsafe-allow-abi-mismatch=sanitizer" --lib --test threads
}

for tool in "${@:-loom address thread}"; do
    for each in $tool; do
        echo "== $each"
        "$each"
    done
done
