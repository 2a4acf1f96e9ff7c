//! Memory that ranks on one host read in place, for arrays of numpy and, by way of them, tensors.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::failure::Failure;

/// Bytes of any values. Arrays over them keep them alive; they may outlive groups.
#[pyclass(frozen, module = "kolo._native")]
pub struct SharedMemory(kolo_comm::SharedMemory);

#[pymethods]
impl SharedMemory {
    #[new]
    fn new(py: Python<'_>, bytes: usize) -> PyResult<Self> {
        let memory = kolo_comm::SharedMemory::new(bytes);
        memory.map(SharedMemory).map_err(|error| Failure::from(error).exception(py, "empty", None))
    }

    /// numpy's description of the bytes.
    #[getter(__array_interface__)]
    fn array_interface<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("typestr", "|u1")?;
        interface.set_item("shape", (self.0.bytes(),))?;
        interface.set_item("data", (self.0.start().as_ptr() as usize, false))?;
        Ok(interface)
    }
}
