#!/usr/bin/env bash
# NCCL on this machine's GPUs: every operation on every type compared with the native group, the operations'
# times, and a killed rank. No part of .ci/run, which has no GPU.
#
#   bash bench/nccl.sh
#
# On a machine with one GPU two ranks share it: NCCL takes them for ranks of two hosts if NCCL_HOSTID differs.
# That tests them, but the GPU switches between their processes every few milliseconds, so the times of two
# ranks say nothing about NCCL or Kolo. KOLO_NCCL_LIBRARY names the library where the linker does not find it.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --release --features nccl
cargo build --release -p kolo-nccl --example all_reduce
kolo=target/release/kolo
compare=target/release/examples/all_reduce

gpus=$(nvidia-smi --list-gpus | wc -l)
ranks=$((gpus > 1 ? gpus : 2))
if [ "$gpus" = 1 ]; then
    export CUDA_VISIBLE_DEVICES=0
    host='export NCCL_HOSTID=rank-$RANK;'
else
    host=
fi
# Runs a shell command as each of the ranks.
workers() { timeout -k 5 120 "$kolo" launch --nproc "$ranks" -- bash -c "$host $1"; }

timeout -k 5 120 "$compare"
workers "exec $compare"
for operation in all-reduce broadcast all-gather reduce-scatter all-to-all reduce gather scatter; do
    workers "exec $kolo bench $operation --backend nccl --nproc $ranks --sizes 4,65536,4194304 --seconds 0.2"
done

echo "rank 1 is killed after 8 seconds; the job ends with its name:"
killed='if [ $RANK = 1 ]; then (sleep 8; kill -9 $$) & fi'
! workers "$killed; exec $kolo bench all-reduce --backend nccl --nproc $ranks --sizes 4194304 --seconds 60"
