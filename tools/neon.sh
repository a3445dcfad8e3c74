#!/bin/sh
# Usage: tools/neon.sh VENV
# Cross-compiles the native test of the kernels for 64-bit Arm and runs it under qemu.
set -eu

PATH=$(cd "$1" && pwd)/bin:$PATH
unset CXX       # the toolchain file names the compiler
unset MAKEFLAGS # names a job server of make's that scripts can't reach, and ninja reports an error
out=build/neon

# -O2 without NDEBUG: asserts should hold here.
cmake -S . -B $out -G Ninja --log-level=WARNING -DCMAKE_CXX_FLAGS=-O2 \
  -DCMAKE_TOOLCHAIN_FILE=tools/aarch64.cmake -DPINFEED_BUILD_PYTHON=OFF -DPINFEED_BUILD_TESTS=ON \
  -DPINFEED_CUDA=OFF
cmake --build $out --target kernels_test -- --quiet
ctest --test-dir $out/csrc/tests -R kernels --output-on-failure --no-tests=error
