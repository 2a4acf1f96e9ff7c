"""Builds the wheel: maturin's build, with the command `kolo` as one of the wheel's scripts.

The environment's KOLO_COMMAND says where the command comes from: `build` (cargo builds it in the workspace above),
`none` (a wheel without it), or the path of a built one.
"""

import os
import shutil
import subprocess
from pathlib import Path

import maturin
from maturin import (  # noqa: F401
    build_sdist, get_requires_for_build_sdist, get_requires_for_build_wheel, prepare_metadata_for_build_wheel)

FOLDER = Path(__file__).resolve().parent
# maturin packs what is in this folder as data of the wheel.
DATA = FOLDER / "kolo._native.data"


def command():
    """Returns the path of the command, or None for a wheel without it."""
    chosen = os.environ.get("KOLO_COMMAND") or "build"
    if chosen == "none":
        return None
    if chosen != "build":
        path = Path(chosen).resolve()
        if not path.is_file():
            raise SystemExit(f"KOLO_COMMAND is `{chosen}`, and there is no such program; give `build`, `none`, or a program's path")
        return path
    workspace = FOLDER.parent
    subprocess.run(["cargo", "build", "--release", "--package", "kolo", "--bin", "kolo"], cwd=workspace, check=True)
    return Path(os.environ.get("CARGO_TARGET_DIR", workspace / "target")) / "release" / "kolo"


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    shutil.rmtree(DATA, ignore_errors=True)
    program = command()
    try:
        if program is not None:
            script = DATA / "scripts" / "kolo"
            script.parent.mkdir(parents=True)
            shutil.copyfile(program, script)
            script.chmod(0o755)
            # The names of functions stay, so that a panic says where it happened.
            if shutil.which("strip"):
                subprocess.run(["strip", "--strip-debug", script], check=True)
        return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)
    finally:
        shutil.rmtree(DATA, ignore_errors=True)
