"""Checks tables of bad calls: the error, and words of its message."""

import pytest


def check(call, error, *words):
    """Asserts that the call raises exactly this error, with a one-line message that contains these words."""
    with pytest.raises(error) as caught:
        call()
    assert type(caught.value) in (error if isinstance(error, tuple) else (error,))
    message = str(caught.value)
    assert [word for word in words if word not in message] == [], message
    assert "\n" not in message
