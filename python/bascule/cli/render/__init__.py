"""Results of commands, and how they are printed."""
