#!/bin/sh
# Usage: tools/gpu.sh test [PYTEST ARGUMENTS] | tools/gpu.sh bench [ARGUMENTS]
# Builds pinfeed with CUDA and runs its GPU tests or benchmarks, with the packages that PYTHON has already:
# it downloads nothing and creates no environment. SANITIZER=memcheck, racecheck or initcheck runs the kernels' tests under
# compute-sanitizer.
set -eu

PYTHON=${PYTHON:-python3}
site=$(pwd)/build/gpu/site
task=$1
shift

# nvcc doesn't have to be in PATH.
if ! command -v nvcc >/dev/null && [ -x "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" ]; then
  export CUDACXX="${CUDA_HOME:-/usr/local/cuda}/bin/nvcc"
fi
rm -rf "$site"
"$PYTHON" -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --no-index \
  --target "$site" --config-settings=build-dir=build/gpu/build \
  --config-settings=cmake.define.PINFEED_CUDA=ON --config-settings=cmake.define.PINFEED_TORCH_OPS=ON .
export PYTHONPATH="$site:$(pwd)/tests:$(pwd)${PYTHONPATH:+:$PYTHONPATH}"
"$PYTHON" -c "import pinfeed; assert pinfeed.__file__.startswith('$site'), pinfeed.__file__"

if [ "$task" = bench ]; then
  exec "$PYTHON" -m bench.gpu "$@"
fi

# Fixtures outside tests/gpu need more packages.
set -- -m pytest --confcutdir=tests/gpu tests/gpu "$@"
if [ -z "${SANITIZER:-}" ]; then
  exec "$PYTHON" "$@"
fi

sanitizer=$(command -v compute-sanitizer || true)
for folder in "${CUDA_HOME:-}" /usr/local/cuda; do
  [ -n "$sanitizer" ] || sanitizer=$(command -v "$folder/bin/compute-sanitizer" || true)
done
if [ -z "$sanitizer" ]; then
  echo "SANITIZER=$SANITIZER needs compute-sanitizer, which comes with the CUDA toolkit" >&2
  exit 1
fi
# Without torch's memory cache, each tensor is its own allocation, so the sanitizer sees its bounds.
PYTORCH_NO_CUDA_MEMORY_CACHING=1 exec "$sanitizer" --tool "$SANITIZER" --error-exitcode 1 \
  --target-processes all "$PYTHON" "$@" -m kernels
