//! What knows the operating system: files, directories, threads for jobs, clocks. Knows no log.
pub(crate) mod clock;
pub(crate) mod disk;
pub(crate) mod failure;
pub(crate) mod fields;
pub(crate) mod file_names;
pub(crate) mod files;
pub(crate) mod jobs;
pub(crate) mod preallocate;
pub(crate) mod slots;
pub(crate) mod storage;
pub(crate) mod window;
