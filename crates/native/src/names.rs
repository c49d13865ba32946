//! `_native.name_flaw` and `_native.id_flaw`: names that begin to exist.
use bascule_broker::names;
use pyo3::prelude::*;

#[pyfunction]
pub(crate) fn name_flaw(name: &str) -> Option<String> {
    names::check_name(name).err().map(|flaw| flaw.to_string())
}

#[pyfunction]
pub(crate) fn id_flaw(name: &str) -> Option<String> {
    names::check_id(name).err().map(|flaw| flaw.to_string())
}
