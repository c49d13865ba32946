"""The targets of a job: each writes the rows of an epoch exactly once."""
