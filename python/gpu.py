"""Checks kolo.torch on CUDA tensors: every operation beside a number worked out here, and each check over torch's own
`cpu:gloo,cuda:nccl` as well. With one rank, then with two ranks; on a machine with one GPU they share it.

    python gpu.py [--wheel dist/kolo-*.whl] [--only PATTERN] [--seconds 110] [--cpu]

It needs torch with CUDA, and the wheel: installed, or its file by --wheel. It prints a line for each check and a
summary, and ends with 0 if Kolo passes every check that torch's own backends pass.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile

from gpu_checks import CHECKS, free_port

WORLDS = (1, 2)


def ranks(world, chosen, until, environment):
    """Runs all checks on some ranks; returns what rank 0 has printed, and what went wrong."""
    port, processes = str(free_port()), []
    for rank in range(world):
        variables = dict(environment, RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1",
                         MASTER_PORT=port)
        if world > 1:
            # NCCL takes ranks of one GPU for ranks of two hosts.
            variables.update(NCCL_HOSTID=f"rank-{rank}", NCCL_SOCKET_IFNAME="lo", NCCL_IB_DISABLE="1")
        command = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpu_checks.py"), chosen.only]
        processes.append(subprocess.Popen(command, env=variables, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
    outputs, problems = [], []
    for rank, process in enumerate(processes):
        try:
            output, _ = process.communicate(timeout=max(1.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            output = process.communicate()[0]
            problems.append(f"rank {rank} of {world} was not over in time")
        outputs.append(output)
        if process.returncode:
            problems.append(f"rank {rank} of {world} ended with {process.returncode}:\n{output[-4000:]}")
    return outputs[0], problems


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--wheel", help="file of the wheel, if it is not installed")
    arguments.add_argument("--only", default=".", metavar="PATTERN", help="checks whose names match")
    arguments.add_argument("--cpu", action="store_true", help="rehearse the checks on the CPU, beside Gloo")
    arguments.add_argument("--seconds", type=float, default=110.0, help="time limit (default 110)")
    chosen = arguments.parse_args()
    began, environment = time.monotonic(), dict(os.environ, OMP_NUM_THREADS="1", CUBLAS_WORKSPACE_CONFIG=":4096:8", KOLO_TIMEOUT="30")
    names = [check.__name__ for check in CHECKS if re.search(chosen.only, check.__name__)]
    passed, bad = 0, []
    with tempfile.TemporaryDirectory(prefix="kolo-gpu-") as folder:
        environment["KOLO_GPU_FOLDER"] = folder
        environment["KOLO_GPU_CHECKS"] = "cpu" if chosen.cpu else "cuda"
        if chosen.wheel:
            zipfile.ZipFile(chosen.wheel).extractall(os.path.join(folder, "wheel"))
            environment["PYTHONPATH"] = os.path.join(folder, "wheel")
        for number, world in enumerate(WORLDS):
            left = chosen.seconds - (time.monotonic() - began)
            output, problems = ranks(world, chosen, time.monotonic() + left / (len(WORLDS) - number), environment)
            lines = [line for line in output.splitlines() if re.match(r"(ok|FAIL|skip|note) ", line)]
            print(*(f"{world} rank{'s' * (world > 1)}: {line}" for line in lines), sep="\n", flush=True)
            done = {line.split()[1].rstrip(":") for line in lines}
            passed += sum(line.startswith("ok ") for line in lines)
            # What torch's own backends cannot do on this machine is no fault of Kolo.
            stock = {line.split()[1] for line in lines if line.startswith("note ") and "own backends" in line}
            bad += [f"{world}: {line}" for line in lines if line.startswith("FAIL ") and line.split()[1] not in stock]
            bad += [f"{world}: {name} did not run" for name in names if name not in done]
            bad += problems
    print(f"\n{passed} checks passed, {len(bad)} problems, {time.monotonic() - began:.0f} s", *bad, sep="\n")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
