//! What a log of several replicas needs beside appends and reads: batches of another replica as they are, links and epochs to
//! compare histories, truncation where a history branches, and a new beginning.
mod links;
mod reset;
mod truncate;
mod verbatim;
