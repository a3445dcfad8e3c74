#!/bin/sh
# Usage: PYTHON=… tools/sanitize_threads.sh [PYTEST ARGUMENTS]
# Runs the tests of Python threads under ThreadSanitizer, with the packages that PYTHON has already.
# PYTHON must be configured with --disable-gil --with-thread-sanitizer CC=clang CXX=clang++.
set -eu

options=$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_config_var("CONFIG_ARGS"))')
for option in disable-gil with-thread-sanitizer; do
  case $options in *--$option*) continue ;; esac
  echo "make sanitize-threads needs a Python that was configured with --$option, got PYTHON=$PYTHON" >&2
  exit 1
done

out=$(pwd)/build/sanitize-threads
rm -rf "$out/site"
TSAN_OPTIONS=report_bugs=0 CC=clang CXX=clang++ "$PYTHON" -m pip install --quiet --disable-pip-version-check \
  --no-build-isolation --no-deps --no-index --target "$out/site" . \
  --config-settings=build-dir=build/sanitize-threads/build \
  --config-settings=install.strip=false \
  --config-settings=cmake.build-type=Debug \
  --config-settings=cmake.define.CMAKE_CXX_FLAGS_DEBUG=-O1 \
  --config-settings=cmake.define.PINFEED_CUDA=OFF \
  --config-settings=cmake.define.PINFEED_SANITIZE=thread
cat >"$out/suppressions" <<'END'
# pybind11's table of instances, because torch's library locks it too, but is not instrumented.
race:pybind11::detail::clear_instance
END

# ThreadSanitizer can't place its shadow memory when addresses are randomized over many bits.
fixed_addresses="setarch $(uname -m) -R"
$fixed_addresses true 2>/dev/null || fixed_addresses=
# After a report the exit status is 66. torch's own threads are not needed.
export PYTHONPATH="$out/site${PYTHONPATH:+:$PYTHONPATH}" OMP_NUM_THREADS=1
TSAN_OPTIONS="suppressions=$out/suppressions" \
  $fixed_addresses "$PYTHON" -m pytest -q --capture=sys tests/test_threads.py "$@"
