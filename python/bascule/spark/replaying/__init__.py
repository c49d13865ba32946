"""Records into a stream, exactly once and by bounded epochs: from an archive, or from another stream.

`lanes` says what is read and how far, `rows` turns records into rows of the sink, `checkpoint` keeps the plan and the
end of each epoch, `transfer` runs the epochs, `archives` and `streams` are the two kinds of source.
"""
