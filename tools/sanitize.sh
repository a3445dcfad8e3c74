#!/bin/sh
# Usage: tools/sanitize.sh VENV
# Runs the native tests and the Python tests marked `kernels` under AddressSanitizer and
# UndefinedBehaviorSanitizer, and the tests of pools, file rows and shared-memory slots under
# ThreadSanitizer. Builds in build/sanitize only.
set -eu

PATH=$(cd "$1" && pwd)/bin:$PATH
out=$(pwd)/build/sanitize
unset MAKEFLAGS # names a job server of make's that scripts can't reach, and ninja reports an error
export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1

# Debug, because asserts should hold here, but optimized, because the tests are many.
echo "== build for address, undefined"
rm -rf "$out/site"
python -m pip install --quiet --no-build-isolation --no-deps --target "$out/site" . \
  --config-settings=build-dir=build/sanitize/address \
  --config-settings=install.strip=false \
  --config-settings=cmake.build-type=Debug \
  --config-settings=cmake.define.CMAKE_CXX_FLAGS_DEBUG=-O1 \
  --config-settings=cmake.define.PINFEED_BUILD_TESTS=ON \
  --config-settings=cmake.define.PINFEED_CUDA=OFF \
  --config-settings=cmake.define.PINFEED_SANITIZE=address,undefined

echo "== native tests under address, undefined"
ctest --test-dir "$out/address/csrc/tests" -j "$(nproc)" --output-on-failure --no-tests=error

# Python is not instrumented, so the runtimes must be loaded before it, together with libstdc++,
# because AddressSanitizer looks up __cxa_throw when it starts. Python leaks on purpose.
preload=
for library in asan ubsan stdc++; do
  preload="$preload $("$CXX" -print-file-name=lib$library.so)"
done
# Allocations that are too large must raise an error here too, not end the process.
asan_options=detect_leaks=0:abort_on_error=1:allocator_may_return_null=1
sanitized() {
  HYPOTHESIS_PROFILE=few LD_PRELOAD=$preload ASAN_OPTIONS=$asan_options PYTHONPATH=$out/site "$@"
}
echo "== Python tests of the kernels under address, undefined"
sanitized python -c "import pinfeed._core as m; assert m.__file__.startswith('$out'), m.__file__"
# Don't capture native output: a sanitizer's report would be lost with the process.
sanitized python -m pytest -q -n logical --maxprocesses 8 --capture=sys -m "kernels and not processes and not slow" \
  tests/ --ignore=tests/frameworks --ignore=tests/gpu

echo "== pools, rows of files and shared slots under thread"
cmake -S . -B "$out/thread" -G Ninja --log-level=WARNING \
  -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O1 -DCMAKE_COMPILE_WARNING_AS_ERROR=ON \
  -DPINFEED_BUILD_PYTHON=OFF -DPINFEED_BUILD_TESTS=ON -DPINFEED_CUDA=OFF -DPINFEED_SANITIZE=thread
cmake --build "$out/thread" --target pools_test row_files_test shared_slot_test -- --quiet
# ThreadSanitizer can't place its shadow memory when addresses are randomized over many bits.
fixed_addresses="setarch $(uname -m) -R"
$fixed_addresses true 2>/dev/null || fixed_addresses=
$fixed_addresses ctest --test-dir "$out/thread/csrc/tests" -j "$(nproc)" -R "pools|row_files|shared_slot" --output-on-failure --no-tests=error
