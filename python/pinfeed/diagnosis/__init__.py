"""Which stage of a loader is slow, and what to change: measured, predicted, and tried.

A diagnosis goes through these files from top to bottom:

    diagnose      the function: what is measured, in which order, until when
    copying       copies of what a loader holds, so that nothing of the user's changes
    stages        what runs in the workers: it makes batches as the loader does, with a clock
    runs          loops over variants of the loader
    model         how long a batch would take, and which limit a loop is at
    changes       what could be changed, and the trials
    report        the text and the dict
    command       ``python -m pinfeed diagnose``
"""
