"""How mkdocstrings reads pinfeed's source, which it does not import."""

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
    """Takes a name that a package imports from its module of that name for what was imported.

    So does Python: after ``from pinfeed.loaders.from_numpy import from_numpy``, ``pinfeed.from_numpy`` is a
    function. Griffe would find the module.
    """

    def on_package(self, *, pkg: Module, **_: Any) -> None:
        """See `griffe.Extension`."""
        for name, module in list(pkg.members.items()):
            if not isinstance(module, Module):
                continue
            self.on_package(pkg=module)
            if pkg.imports.get(name) == f"{module.path}.{name}":
                pkg.set_member(name, Alias(name, module[name], parent=pkg))
