"""The harness: sweeps in, rows out. On that way no module names an operator.

Those rooms are sweep, device, sampling, store, worker and runner. What judges rows, checks clocks or reads
other tools' files does know some operators: doctor/ measures a fixed
selection.
"""
