"""Finds the slow stage of a training loop and tries the changes that can help.

A diagnosis goes through these files from top to bottom:

    diagnose      the function: order and duration of measurements
    copying       copies of a loader's parts, so that the user's objects don't change
    stages        timed production of batches; runs in the workers
    runs          loops over variants of the loader
    limit         the stage that bounds the loop, and general remedies
    changes       the changes to try, and the results of their trials
    transforms    the change that replaces a dataset's transform with a field
    report        the text and the dict
    command       ``python -m pinfeed diagnose``

configuration.py prints versions and settings, which a report about a bug needs as well.
"""
