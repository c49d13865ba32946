//! The Python module `bascule._native`.
mod client;
mod engine;
mod failure;
mod offline;
mod outgoing;

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add(
        "NativeError",
        module.py().get_type::<failure::NativeError>(),
    )?;
    module.add_class::<engine::Engine>()?;
    module.add_class::<client::Client>()?;
    module.add_class::<outgoing::Outgoing>()?;
    module.add_class::<client::Bell>()?;
    module.add_class::<client::Subscription>()?;
    module.add_class::<client::RecordBatch>()?;
    module.add_function(wrap_pyfunction!(engine::access_allows, module)?)?;
    module.add_function(wrap_pyfunction!(offline::log_verify, module)?)?;
    module.add_function(wrap_pyfunction!(offline::log_inspect, module)?)?;
    module.add_function(wrap_pyfunction!(offline::log_repair, module)?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("BUILD_PROFILE", env!("BASCULE_PROFILE"))?;
    Ok(())
}
