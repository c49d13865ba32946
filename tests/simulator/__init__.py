"""The simulator's first part: the real log engine over a simulated disk, one seed one schedule.

`python -m tests.simulator SEED` runs one seed and prints its trace; `--seeds N` runs many and reports. A seed draws how
many partitions there are, what they are asked, what fails and when the power goes; after each crash the engine recovers
and is compared with a model (reliability §5.2: I20 to I26, P5, P6; reliability §5.3). `make sim` builds the module.
"""
