"""Prints the error of a module, or of a call of its functions, without a library."""

import importlib
import sys

library, name, *functions = sys.argv[1:]
sys.modules[library] = None
try:
    module = importlib.import_module(name)
    for function in functions:
        getattr(module, function)([])
except ImportError as error:
    print(error)
