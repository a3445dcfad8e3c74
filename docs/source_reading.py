"""Extensions for mkdocstrings, which reads pinfeed's source without importing it."""

import re
from typing import Any

from griffe import Alias, Extension, Module, Object


class ExampleSections(Extension):
    """Reads ``Example:`` as ``Examples:``, the only heading under which griffe looks for code."""

    def on_instance(self, *, obj: Object, **_: Any) -> None:
        """See `griffe.Extension`."""
        if obj.docstring:
            obj.docstring.value = re.sub(
                r"^Example:$",
                "Examples:",
                obj.docstring.value,
                flags=re.MULTILINE,
            )


class FunctionsBeforeModules(Extension):
    """Resolves a name to the imported object if the package also has a module of that name, as Python does.

    After ``from pinfeed.loaders.from_numpy import from_numpy``, ``pinfeed.from_numpy`` is a function; griffe
    finds the module.
    """

    def on_package(self, *, pkg: Module, **_: Any) -> None:
        """See `griffe.Extension`."""
        for name, module in list(pkg.members.items()):
            if not isinstance(module, Module):
                continue
            self.on_package(pkg=module)
            if pkg.imports.get(name) == f"{module.path}.{name}":
                pkg.set_member(name, Alias(name, module[name], parent=pkg))
