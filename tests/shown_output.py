"""Compares the output of a page with the output that it shows.

A page shows an output as a comment after the ``print(...)``, or as comment lines right below it.
"""

import ast
import io
import itertools
import sys
import tokenize


def shown_outputs(code):
    """Returns the output shown for each ``print``, by the number of its first line."""
    comments, below = {}, {}
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.COMMENT:
            of_line = below if token.line.lstrip().startswith("#") else comments
            of_line[token.start[0]] = token.string.removeprefix("#").removeprefix(" ")
    outputs = {}
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print":
            numbers = itertools.count(node.end_lineno + 1)
            lines = [below[number] for number in itertools.takewhile(below.__contains__, numbers)]
            if node.end_lineno in comments:
                lines.insert(0, comments[node.end_lineno])
            if lines:
                outputs[node.lineno] = "\n".join(lines)
    return outputs


class Print:
    """The ``print`` of a page: raises AssertionError if the page shows another output."""

    def __init__(self, outputs):
        self.outputs = outputs
        self.unseen = {*outputs}

    def __call__(self, *values):
        line = sys._getframe(1).f_lineno
        printed = " ".join(map(str, values))
        if line in self.outputs:
            expected = self.outputs[line]
            assert printed == expected, (
                f"line {line} prints {printed!r}, the page shows {expected!r}"
            )
            self.unseen.discard(line)
        print(printed)

    def end(self):
        """Raises AssertionError if a ``print`` with a shown output never ran."""
        assert not self.unseen, f"nothing printed by the lines {sorted(self.unseen)}"
