"""A virtual environment in which PyPI's torch runs on the CPU, without most of what its wheel depends on.

The Linux wheel on PyPI is built for CUDA and asks for 2 GB of further packages. Its libraries name twelve
CUDA libraries to be loaded with them, but on a machine without a GPU hardly a function of these is called.
So three small packages and NVSHMEM (75 MB together), whose data or start-up functions are needed, are
installed, and empty libraries take the place of the others. For this to load, functions have to be looked
up when first called (lazy binding), where Python asks for all of them at once. The CPU's code is the
wheel's own and untouched.
"""

import os
import platform
import shutil
import sys
from pathlib import Path

from processes import BenchError, Command, run

TORCH = "2.11.0"
TORCHVISION = "0.26.0"
TORCHFT = "2026.10.26"
"""Of `torchft-nightly`: in the release 0.2.0 a failed all-reduce fails the others' backward pass, too."""
SMALL_DEPENDENCIES = (
    "filelock typing-extensions>=4.10 sympy>=1.13.3 networkx>=2.5.1 jinja2 fsspec numpy setuptools<82"
)
CUDA_PACKAGES = (
    "nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85 "
    "nvidia-cufile==1.15.1.6 nvidia-nvshmem-cu13==3.4.5"
)
"""The versions that torch's metadata pins."""
EMPTY_LIBRARIES = (
    "libcublas.so.13 libcublasLt.so.13 libcudnn.so.9 libcufft.so.12 libcurand.so.10 libcusparse.so.12 "
    "libcusparseLt.so.0 libnccl.so.2"
)
TELEMETRY = "opentelemetry-api opentelemetry-sdk opentelemetry-exporter-otlp-proto-http"
"""What torchft imports besides torch."""
LIBRARY_FOLDER = "nvidia/cu13/lib"
"""Below site-packages; on the search path that is written into torch's libraries."""
LAZY_BINDING = "import os, sys; sys.setdlopenflags(os.RTLD_LAZY)\n"

VENV = Path(__file__).resolve().with_name(".venv")
IMPORT_SECONDS = 300
INSTALL_SECONDS = 1800
REMEDY = "or name a Python that has torch already: --python PATH"
IMPORT_TORCHVISION = "import safetensors, torchvision"
IMPORT_TORCH = "import torch, torch.distributed as d; assert d.is_gloo_available(); print(torch.__version__)"


def with_torch(given: Path | None) -> str:
    """The interpreter that runs PyTorch: the user's, or that of an environment beside this file."""
    return given_python(given) if given else prepared_python(VENV)


def torch_version(python: str) -> str:
    """The version of torch that `python` imports; an error if it cannot, or has no Gloo."""
    return run(Command(f"import of torch by {python}", [python, "-c", IMPORT_TORCH]), IMPORT_SECONDS).strip()


def prepared_python(folder: Path) -> str:
    """The interpreter of the environment in `folder`, which is made (anew) where torch cannot be imported."""
    python = str(folder / "bin" / "python")
    if Path(python).exists():
        try:
            if torch_version(python).split("+")[0] == TORCH:
                return python
        except BenchError:
            pass
        print(f"{folder.name} is of no use (an interrupted installation?): making it anew", file=sys.stderr)
        shutil.rmtree(folder)
    _check_platform()
    print(f"installing torch {TORCH} for the CPU in {folder.name} (about 600 MB, once)", file=sys.stderr)
    try:
        _install(folder, python)
        torch_version(python)
    except BenchError as error:
        text = f"PyTorch could not be installed: check the network and run again, {REMEDY}"
        raise BenchError(f"{text}\n{error}") from error
    return python


def with_torchvision(given: Path | None) -> str:
    """The same with torchvision and safetensors, which are installed where they are missing in the environment."""
    python = with_torch(given)
    try:
        run(Command(f"import of torchvision by {python}", [python, "-c", IMPORT_TORCHVISION]), IMPORT_SECONDS)
    except BenchError:
        if given:
            raise
        # Its wheel asks for the torch that is there already.
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        packages = [f"torchvision=={TORCHVISION}", "pillow", "safetensors"]
        run(Command("pip install", pip + packages, show=True), INSTALL_SECONDS)
    return python


def torchft_version(python: str, install: bool) -> str:
    """The version of torchft that `python` imports; with `install` it is installed where it is missing."""
    code = "import torchft; from importlib import metadata as m; print(m.version('torchft-nightly'))"
    test = Command(f"import of torchft by {python}", [python, "-c", code])
    try:
        return run(test, IMPORT_SECONDS).strip()
    except BenchError:
        if not install:
            raise
    # Its wheels ask for the torch that is there already.
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run(Command("pip install", [*pip, "--no-deps", f"torchft-nightly=={TORCHFT}"], show=True), INSTALL_SECONDS)
    run(Command("pip install", [*pip, *TELEMETRY.split()], show=True), INSTALL_SECONDS)
    return run(test, IMPORT_SECONDS).strip()


def given_python(path: Path) -> str:
    """The user's own interpreter, if it has torch. Links are kept: an environment is found by its link."""
    python = os.path.abspath(path)
    try:
        torch_version(python)
    except BenchError as error:
        remedy = f"install torch=={TORCH} there, or leave --python out to have it installed"
        raise BenchError(f"--python {path} has no usable torch: {remedy}\n{error}") from error
    return python


def _check_platform() -> None:
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise BenchError(f"torch is installed on x86-64 Linux only; {REMEDY}")
    if not (3, 11) <= sys.version_info[:2] <= (3, 14):
        ours = platform.python_version()
        raise BenchError(f"torch {TORCH} has no wheel for Python {ours}: run with 3.11 to 3.14, {REMEDY}")
    if shutil.which("cc") is None:
        raise BenchError(f"a C compiler is needed to make empty libraries: install `cc`, {REMEDY}")


def _install(folder: Path, python: str) -> None:
    run(Command("python -m venv", [sys.executable, "-m", "venv", str(folder)], show=True), IMPORT_SECONDS)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    small = Command("pip install", pip + SMALL_DEPENDENCIES.split(), show=True)
    wheels = Command("pip install", pip + ["--no-deps", f"torch=={TORCH}", *CUDA_PACKAGES.split()])
    run(small, INSTALL_SECONDS)
    run(wheels, INSTALL_SECONDS)

    where = "import sysconfig; print(sysconfig.get_path('platlib'))"
    site_packages = Path(run(Command("python", [python, "-c", where]), IMPORT_SECONDS).strip())
    (site_packages / "lazy_binding.pth").write_text(LAZY_BINDING)
    for name in EMPTY_LIBRARIES.split():
        library = str(site_packages / LIBRARY_FOLDER / name)
        compiler = ["cc", "-shared", "-nostdlib", "-x", "c", os.devnull, f"-Wl,-soname,{name}", "-o", library]
        run(Command("cc", compiler), IMPORT_SECONDS)
