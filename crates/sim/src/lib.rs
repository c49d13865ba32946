//! The Python module `bascule_sim`: the real log engine over a disk that forgets, lies and fails by a seed.
//!
//! For the simulator in `tests/simulator` (reliability §5.3) and nothing else. One thread, no time, no
//! entropy: the same calls in the same order give the same bytes and the same digest.
//!
//! * `disk`: files and names in memory, what of them is durable, and what a crash leaves ([`disk::SimDisk`]).
//! * `storage`: the same behind the engine's door to files.
//! * `python`: the classes `Disk`, `Store` and `Log`.
mod disk;
mod python;
mod storage;

use pyo3::prelude::*;

#[pymodule]
fn bascule_sim(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("SimError", module.py().get_type::<python::SimError>())?;
    module.add_class::<python::Disk>()?;
    module.add_class::<python::Store>()?;
    module.add_class::<python::Log>()?;
    module.add_function(wrap_pyfunction!(python::plant, module)?)?;
    module.add_function(wrap_pyfunction!(python::read_bomb, module)?)?;
    Ok(())
}
