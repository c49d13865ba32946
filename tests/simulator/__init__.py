"""The simulator: the real log engine over a simulated disk; one seed is one schedule.

`python -m tests.simulator SEED` runs one seed and prints its trace; `--seeds N` runs many and reports. A seed sets
the number of partitions, the operations, the faults and the power cuts; after each crash the engine recovers and is
compared with a model (reliability §5.2: I20 to I26, P5, P6; reliability §5.3). `make sim` builds the module.
"""
