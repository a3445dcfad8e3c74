"""Finds the slow stage of a training loop and tries the changes that can help.

A diagnosis goes through these files from top to bottom:

    diagnose      the function: what is measured, in which order, and until when
    copying       copies of what a loader holds, so that nothing of the user's changes
    stages        makes batches as the loader does, with a clock; runs in the workers
    runs          loops over variants of the loader
    limit         which stage bounds the loop, and what helps against each
    changes       the changes to try, and what their trials showed
    report        the text and the dict
    command       ``python -m pinfeed diagnose``
"""
