#!/bin/sh
# Usage: tools/wheel.sh VENV TORCH_REQUIREMENT
# Builds a wheel into dist/, makes it portable if the platform requires that, and runs the tests in
# tests/smoke.txt on it in an empty environment, outside the source tree. Then checks the ops of an
# editable install.
set -eu

venv=$(cd "$1" && pwd)
PATH=$venv/bin:$PATH
out=$(pwd)/build/wheel
rm -rf "$out" dist
mkdir -p "$out/test" dist

python -m pip wheel --quiet --no-build-isolation --no-deps --wheel-dir "$out" .
if [ "$(uname)" = Linux ]; then
  # torch, which pinfeed imports, loads its own library first.
  auditwheel repair --exclude libtorch_cpu.so --wheel-dir dist "$out"/pinfeed-*.whl
else
  cp "$out"/pinfeed-*.whl dist/
fi

python -m venv "$out/venv"
"$out/venv/bin/python" -m pip install --quiet --disable-pip-version-check dist/pinfeed-*.whl "$2" 'pytest>=8.2' hypothesis tqdm

# The ops must use torch's stable ABI, and load in the oldest torch that has it.
package=$("$out/venv/bin/python" -c 'import pathlib, pinfeed; print(pathlib.Path(pinfeed.__file__).parent)')
torch-abi-audit --check torch "$package" >"$out/audit" || { cat "$out/audit"; exit 1; }
cat "$out/audit"
grep -q 'Min torch: *2\.11\.0$' "$out/audit"

cp -r tests conftest.py pyproject.toml "$out/test"
cd "$out/test"
"$out/venv/bin/python" -m pytest -q @tests/smoke.txt

# An editable install keeps libraries and modules in different folders. Its build tools are installed already.
python -m venv "$out/editable"
purelib='import sysconfig; print(sysconfig.get_path("purelib"))'
python -c "$purelib" >"$("$out/editable/bin/python" -c "$purelib")/build.pth"
"$out/editable/bin/python" -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps \
  -e "$OLDPWD"
"$out/editable/bin/python" -c "import pinfeed, torch; torch.ops.pinfeed.permute.default; print(pinfeed.__file__)" |
  grep "^$OLDPWD/python/"
