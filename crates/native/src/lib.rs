//! The Python module `bascule._native`.
mod client;
mod engine;
mod events;
mod failure;
mod names;
mod outgoing;
mod record;
mod rows;
mod tools;

use mimalloc::MiMalloc;
use pyo3::prelude::*;

/// What one thread allocates, another mostly frees: the system's allocator makes them wait for each other. Version 2 takes no
/// lock to allocate, which a fork of a Python process could leave held in the child.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add(
        "NativeError",
        module.py().get_type::<failure::NativeError>(),
    )?;
    module.add_class::<engine::Engine>()?;
    module.add_class::<client::Client>()?;
    module.add_class::<outgoing::Outgoing>()?;
    module.add_class::<outgoing::Partitioner>()?;
    module.add_class::<outgoing::Spread>()?;
    module.add_class::<client::Bell>()?;
    module.add_class::<client::Subscription>()?;
    module.add_class::<client::RecordBatch>()?;
    module.add_function(wrap_pyfunction!(engine::access_allows, module)?)?;
    module.add_function(wrap_pyfunction!(rows::check_rows, module)?)?;
    module.add_function(wrap_pyfunction!(names::name_flaw, module)?)?;
    module.add_function(wrap_pyfunction!(names::id_flaw, module)?)?;
    module.add_function(wrap_pyfunction!(tools::log_verify, module)?)?;
    module.add_function(wrap_pyfunction!(tools::log_inspect, module)?)?;
    module.add_function(wrap_pyfunction!(tools::log_metadata, module)?)?;
    module.add_function(wrap_pyfunction!(tools::log_repair, module)?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("BUILD_PROFILE", env!("BASCULE_PROFILE"))?;
    Ok(())
}
