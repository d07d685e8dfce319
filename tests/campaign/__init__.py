"""Campaigns: thousands of mutated inputs, kills, damaged files and failing disks, counted.

    mutation     contracts, CSVs, configs and options, structure-aware and mostly valid: no traceback, no
                 hang, one line of error, and what is accepted keeps its promises
    kills        a run killed at every operation on its files, or at random moments, ends with the same bits
    corruption   every file of a run folder damaged: refused in one line that names it, or the same result
    faults       a full disk, an I/O error, missing rights, Ctrl-C at every operation: nothing lost,
                 nothing half-written, nothing left over

`python -m tests.campaign` runs them all (`docs/reliability.md` says what they show); every case runs in a
process forked from one that has imported everything, under limits on CPU time and memory. All randomness
comes from --seed, except for the moments of those kills that come at a random time.
"""
