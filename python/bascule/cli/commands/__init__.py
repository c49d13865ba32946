"""The sub-commands of `bascule`, one module for each noun or verb, and helpers that only they use."""
