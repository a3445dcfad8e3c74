"""Allowed imports: the layers of csrc and the folders of the package, read from the sources."""

import ast
import functools
import re
from pathlib import Path

import pytest

from programs import run_program

ROOT = Path(__file__).parents[1]
CSRC = ROOT / "csrc"
PACKAGE = ROOT / "python" / "pinfeed"

# The folders of the Python package in the order of the data flow: each imports only from itself and the rows
# above it. The list is at the top of python/pinfeed/README.md.
FOLDERS = [
    {"arguments", "imports", "limits", "structure"},
    {"batches", "runtime", "ranks"},
    {"files", "memory", "functional"},
    {"sources", "samplers"},
    {"streams", "augment"},
    {"fields"},
    {"collation"},
    {"loaders"},
    {"exports", "integrations", "diagnosis", "packing", "testing"},
    {"__init__", "__main__"},
]
LEVELS = {folder: level for level, folders in enumerate(FOLDERS) for folder in folders}

INTRINSICS = {"immintrin.h", "emmintrin.h", "arm_neon.h"}
THREADS = {"thread", "mutex", "shared_mutex", "condition_variable", "future", "atomic", "pthread.h"}
# A library that links libstdc++ statically crashes when it prints a number to a stream.
STREAMS = {"iomanip", "iostream", "istream", "ostream", "sstream", "streambuf"}
FILES = {"fstream", "iostream", "cstdio", "filesystem", "stdio.h"}

# The layers and other headers that each layer may include: all of the C++ standard library (names without a dot
# or slash) except the excluded headers, plus the named ones.
LAYERS = {
    "arrays": {"layers": {"arrays"}, "without": THREADS | FILES, "plus": set()},
    "kernels": {"layers": {"kernels"}, "without": THREADS | FILES, "plus": INTRINSICS},
    "dispatch": {"layers": {"dispatch", "kernels"}, "without": FILES, "plus": {"cpuid.h", "unistd.h"}},
    "runtime": {
        "layers": {"runtime"},
        "without": set(),
        "plus": {"fcntl.h", "pthread.h", "sched.h", "signal.h", "unistd.h"}
        | {f"sys/{name}.h" for name in ("mman", "resource", "stat", "statvfs", "uio")},
    },
    # The work of a device thread is plain C++, which native tests run on the CPU; nvcc compiles its launch. It uses
    # only types and rounding of the kernels.
    "cuda": {"layers": {"cuda", "kernels"}, "without": THREADS | FILES, "plus": {"cuda_runtime.h", "cuda_runtime_api.h"}},
    "bindings/torch": {
        "layers": {"arrays", "bindings/torch", "cuda", "dispatch", "kernels"},
        "without": THREADS | FILES | STREAMS,
        # Only the stable ABI, and the query for the stream of torch's CUDA library.
        "plus": {
            f"torch/csrc/stable/{name}.h" for name in ("accelerator", "library", "ops", "tensor")
        }
        | {"cstdio", "cuda_runtime_api.h", "dlfcn.h", "mutex"},
    },
    "bindings/python": {
        "layers": {"arrays", "bindings/python", "dispatch", "kernels", "runtime"},
        "without": THREADS | FILES,
        "plus": {"atomic", "pybind11/pybind11.h", "pybind11/numpy.h", "pybind11/stl.h"}
        | {"pybind11/critical_section.h", "pybind11/gil_safe_call_once.h"},
    },
}  # fmt: skip
# Exists only under AddressSanitizer.
SANITIZERS = {"sanitizer/asan_interface.h"}

SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:<(?P<system>[^>]+)>|"(?P<own>[^"]+)")', re.MULTILINE)


def sources(folder):
    return sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES)


def layer_of(path):
    return next((layer for layer in LAYERS if path.as_posix().startswith(layer + "/")), None)


def test_every_source_belongs_to_a_layer():
    tests = CSRC / "tests"
    strays = [
        path
        for path in sources(CSRC)
        if not path.is_relative_to(tests) and layer_of(path.relative_to(CSRC)) is None
    ]
    assert strays == []


@pytest.mark.parametrize("layer", LAYERS)
def test_includes(layer):
    rules = LAYERS[layer]
    result = sources(CSRC / layer)
    assert result
    broken = []
    for path in result:
        for include in INCLUDE.finditer(path.read_text()):
            own, system = include["own"], include["system"]
            if own is not None:
                allowed = layer_of(Path(own)) in rules["layers"]
            else:
                is_standard = re.fullmatch(r"[a-z_0-9]+", system) is not None
                allowed = is_standard and system not in rules["without"]
                allowed = allowed or system in rules["plus"] | SANITIZERS
            if not allowed:
                broken.append(f"{path.relative_to(CSRC)} includes {own or system}")
    assert broken == []


def test_cpu_ops_need_no_cuda():
    needing = {
        path.name
        for path in sources(CSRC / "bindings/torch")
        if re.search(r'include ["<](cuda|dlfcn|bindings/torch/(cuda|device))', path.read_text())
    }
    assert needing == {"ops_cuda.cpp"}


def test_native_tests_need_no_python():
    text = "".join(path.read_text() for path in sources(CSRC / "tests"))
    assert not re.search(r"pybind11|Python\.h|torch/", text)


def test_the_work_of_device_threads_needs_no_cuda():
    # Otherwise the native tests could not run it without nvcc.
    needing = {
        path.name
        for path in sources(CSRC / "cuda")
        if re.search(r"cuda_runtime|__global__|<<<", path.read_text())
    }
    assert needing == {"launches.h", "launches.cu"}
    text = "".join(path.read_text() for path in sources(CSRC / "tests"))
    assert re.findall(r'"cuda/\w+_plan\.h"', text)
    assert "cuda/launches.h" not in text


def test_the_module_file_is_a_table_of_contents():
    text = (CSRC / "bindings/python/module.cpp").read_text()
    declared, body = re.search(r"(.*)PYBIND11_MODULE\(.*?\) \{(.*?)\n\}", text, re.DOTALL).groups()
    names = re.findall(r"register_\w+", declared)
    assert names
    assert names == re.findall(r"register_\w+", body)
    loop = r"for \(Register\* const add : \{[\w, ]+\}\) \{ add\(m\); \}"
    assert re.fullmatch(loop, " ".join(body.split()))


def test_no_file_is_compiled_for_a_newer_cpu():
    # The linker could keep such a file's copies of inline standard-library functions for all files. SIMD code selects
    # its target per function instead.
    build_files = [ROOT / "pyproject.toml", ROOT / "Makefile", *ROOT.glob("tools/*")]
    build_files += [ROOT / "CMakeLists.txt", *CSRC.rglob("CMakeLists.txt")]
    flag = re.compile(r"-m(arch|cpu|tune|avx|fma|f16c|sse|bmi|popcnt)|/arch:|-x[A-Z]|-ffast-math")
    assert [path.name for path in build_files if flag.search(path.read_text())] == []
    assert [path.name for path in sources(CSRC) if "GCC target" in path.read_text()] == []


def modules():
    return [path.relative_to(PACKAGE) for path in sorted(PACKAGE.rglob("*.py"))]


def folder_of(module):
    return module.parts[0].removesuffix(".py")


@functools.cache
def imported_folders(module):
    """Returns the folders that a module imports from; in the package's ``__init__``, "" means all of them."""
    folders = set()
    for node in ast.walk(ast.parse((PACKAGE / module).read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports by dots; the package is named in full"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        folders |= {name.split(".")[1] for name in names if name.startswith("pinfeed.")}
    return folders


def test_every_module_belongs_to_a_folder():
    assert {folder_of(module) for module in modules()} == set(LEVELS)


@pytest.mark.parametrize("folder", sorted(LEVELS))
def test_folders_import_from_the_folders_above_them_only(folder):
    broken = [
        f"{module} imports from {other}"
        for module in modules()
        if folder_of(module) == folder
        for other in imported_folders(module)
        if other not in {folder, "_core"} and LEVELS.get(other, -1) >= LEVELS[folder]
    ]
    assert broken == []


def test_import_loads_what_a_training_loop_needs():
    """Imports no optional library, and few modules that only some programs need."""
    loaded = run_program("modules_that_it_imports", fresh=True).split()
    optional = {"PIL", "matplotlib", "tqdm", "sklearn", "tensorflow", "ray", "pyarrow"}
    assert {name.partition(".")[0] for name in loaded} & (optional | {"transformers"}) == set()
    folders = {name.split(".")[1] for name in loaded if name.startswith("pinfeed.")}
    assert "fields" in folders
    assert folders & {"diagnosis", "exports", "integrations", "streams"} == set()
