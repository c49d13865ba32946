"""Reading records from input, printing records, and where in a partition to start and stop."""
