"""The sub-commands of `bascule`, one module for each noun or verb, and what only they use."""
