#!/bin/sh
# Usage: tools/gpu.sh test [PYTEST ARGUMENTS] | tools/gpu.sh bench [ARGUMENTS]
# Builds and runs what needs a GPU, with the packages that PYTHON has already: nothing is downloaded, and
# no environment is made. SANITIZER=memcheck, racecheck or initcheck runs the kernels' tests under
# compute-sanitizer.
set -eu

PYTHON=${PYTHON:-python3}
site=$(pwd)/build/gpu/site
what=$1
shift

# A build without kernels is useless on a GPU. nvcc need not be in PATH.
if ! command -v nvcc >/dev/null && [ -x "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" ]; then
  export CUDACXX="${CUDA_HOME:-/usr/local/cuda}/bin/nvcc"
fi
rm -rf "$site"
"$PYTHON" -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --no-index \
  --target "$site" --config-settings=build-dir=build/gpu/build \
  --config-settings=cmake.define.PINFEED_CUDA=ON --config-settings=cmake.define.PINFEED_TORCH_OPS=ON .
export PYTHONPATH="$site:$(pwd)/tests:$(pwd)${PYTHONPATH:+:$PYTHONPATH}"
"$PYTHON" -c "import pinfeed; assert pinfeed.__file__.startswith('$site'), pinfeed.__file__"

if [ "$what" = bench ]; then
  exec "$PYTHON" -m bench.gpu "$@"
fi

# Above tests/gpu there are fixtures that take more packages.
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
# Without torch's cache of memory, each tensor is an allocation of its own, whose end is known.
PYTORCH_NO_CUDA_MEMORY_CACHING=1 exec "$sanitizer" --tool "$SANITIZER" --error-exitcode 1 \
  --target-processes all "$PYTHON" "$@" -m kernels
