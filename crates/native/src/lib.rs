//! The Python module `bascule._native`.
mod client;
mod failure;

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add(
        "NativeError",
        module.py().get_type::<failure::NativeError>(),
    )?;
    module.add_class::<client::Client>()?;
    module.add_class::<client::Subscription>()?;
    module.add_class::<client::RecordBatch>()?;
    Ok(())
}
