"""Builds, installs or finds the programs to measure, before any clock runs. Only Kolo has to be there."""

import argparse
import os
import re
import sys
from pathlib import Path

import environment
import machine
import mpi
from arguments import ROOT
from processes import BenchError, Command, run
from results import Results
from systems import Programs

BUILT = mpi.HERE / ".build"
BUILD_SECONDS = 3600


def find(options: argparse.Namespace, results: Results) -> Programs:
    """All of them; a peer that is missing leaves a note."""
    wants_mpi = any(part != "step" for part in options.only)
    return Programs(
        kolo=kolo(options.kolo),
        python=python(options.python, results),
        open_mpi=peer(mpi.OPEN_MPI, results) if wants_mpi else None,
        mpich=peer(mpi.MPICH, results) if wants_mpi else None,
    )


def kolo(given: Path | None) -> str:
    """The program to measure. It is built unless one is given, so that no forgotten old build is measured."""
    if given:
        if not os.access(given, os.X_OK) or given.is_dir():
            raise BenchError(f"--kolo {given}: no such program; leave the option out to have it built")
        return str(given.resolve())
    manifest = ["--manifest-path", str(ROOT / "Cargo.toml")]
    cargo = ["cargo", "build", "--release", "--package", "kolo", *manifest]
    run(Command("cargo build", cargo, show=True), BUILD_SECONDS)
    return str(Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "release" / "kolo")


def python(given: Path | None, results: Results) -> str | None:
    """The interpreter that runs PyTorch; one that was asked for has to work."""
    try:
        return environment.with_torch(given)
    except BenchError as error:
        if given:
            raise
        _note("Gloo and PyTorch DDP: PyTorch could not be installed", error, results)
        return None


def peer(which: mpi.Mpi, results: Results) -> str | None:
    """The all-reduce program compiled for one MPI."""
    if reason := which.missing():
        _note(reason, reason, results)
        return None
    try:
        return str(which.build(BUILT))
    except BenchError as error:
        _note(f"{which.name}: the program could not be compiled", error, results)
        return None


def _note(note: str, told: object, results: Results) -> None:
    """Briefly in the report, in full for whoever is waiting."""
    results.note(note)
    print(f"warning: {told}", file=sys.stderr)


def versions(programs: Programs) -> dict[str, str]:
    """Of all that is measured, and of what built or runs it."""
    found = {
        "Kolo": machine.version([programs.kolo, "--version"]).removeprefix("kolo "),
        "rustc": machine.version(["rustc", "--version"]).removeprefix("rustc ").partition(" ")[0],
    }
    if programs.python:
        found["PyTorch"] = environment.torch_version(programs.python)
        found["Python"] = machine.version([programs.python, "--version"]).removeprefix("Python ")
    for which, program in ((mpi.OPEN_MPI, programs.open_mpi), (mpi.MPICH, programs.mpich)):
        if program:
            found[which.name] = mpi_version(run(Command(which.launcher, [which.launcher, "--version"]), 60))
    return found


def mpi_version(text: str) -> str:
    """The first thing that looks like one; the launchers print it amid other words."""
    found = re.search(r"\b\d+\.\d+(\.\d+)?\S*", text)
    return found[0] if found else "unknown"
