//! The native part of Python's module `kolo`: groups of kolo-comm behind raw addresses. What users see is in
//! the folder `kolo` beside this one, which reads addresses and types from arrays.
//!
//! A call of [`group`] becomes a [`call`], with [`elements`] of many types whose reductions [`mod@reduce`] runs. It
//! runs on the caller's thread without the GIL, or on the thread of a [`queue`]. A [`failure`] becomes a
//! Python exception.

mod call;
mod dlpack;
mod elements;
mod failure;
mod group;
mod queue;
mod reduce;
mod region;
mod shared_memory;
mod waiting;

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<group::NativeGroup>()?;
    module.add_class::<group::StoreServer>()?;
    module.add_class::<group::Message>()?;
    module.add_class::<queue::Handle>()?;
    module.add_class::<shared_memory::SharedMemory>()?;
    module.add_function(wrap_pyfunction!(dlpack::from_dlpack, module)?)?;
    module.add_function(wrap_pyfunction!(waiting::end_callbacks, module)?)?;
    module.add_function(wrap_pyfunction!(queue::settle, module)?)?;
    module.add("ELEMENTS", elements::ELEMENTS.map(|(name, element)| (name, element.size())).to_vec())?;
    module.add("REDUCTIONS", elements::REDUCTIONS.map(|(name, _)| name).to_vec())?;
    module.add("OPERATIONS", call::OPERATIONS.map(|(name, _)| name).to_vec())?;
    Ok(())
}
