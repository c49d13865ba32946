"""The models of a job file."""
