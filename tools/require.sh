#!/bin/sh
# Usage: PYTHON=… CXX=… tools/require.sh python|compiler|sanitizers|aarch64
# Prints one line about the missing tool, or nothing if all tools are installed.

python() {
  if ! command -v "$PYTHON" >/dev/null 2>&1; then
    echo "pinfeed needs Python 3.11 or later: $PYTHON was not found"
    return
  fi
  version=$("$PYTHON" -c 'import platform; print(platform.python_version())' 2>/dev/null) || {
    echo "pinfeed needs Python 3.11 or later: $PYTHON does not run"
    return
  }
  "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "pinfeed needs Python 3.11 or later: $PYTHON is $version"
    return
  }
  "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null || {
    echo "pinfeed needs the venv module of $PYTHON $version (Debian, Ubuntu: apt install python3-venv)"
    return
  }
  include=$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("include"))')
  [ -f "$include/Python.h" ] ||
    echo "pinfeed needs the C headers of $PYTHON $version (Debian, Ubuntu: apt install python3-dev)"
}

compiler() {
  command -v "${CXX%% *}" >/dev/null 2>&1 || {
    echo "pinfeed needs a C++20 compiler such as g++ 12: $CXX was not found (set CXX to use another)"
    return
  }
  echo '#include <span>' | $CXX -std=c++20 -fsyntax-only -x c++ - 2>/dev/null ||
    echo "pinfeed needs a C++20 compiler such as g++ 12: $CXX does not compile C++20"
}

sanitizers() {
  for library in asan ubsan tsan; do
    # g++ prints only the name of a library that it doesn't have.
    case $($CXX -print-file-name=lib$library.so 2>/dev/null) in
      /*) ;;
      *) echo "make sanitize needs g++ on Linux with its sanitizer libraries: $CXX has no lib$library.so"; return ;;
    esac
  done
}

aarch64() {
  for tool in aarch64-linux-gnu-g++ qemu-aarch64; do
    command -v $tool >/dev/null 2>&1 || {
      echo "make neon needs $tool (Debian, Ubuntu: apt install g++-aarch64-linux-gnu qemu-user)"
      return
    }
  done
}

"$1"
