//! The memory of candle's tensors: read where it lies, and written in place.

use candle_core::{CpuStorage, Error, InplaceOp1, Layout, Result, Storage, Tensor, bail};

/// Calls `look` with a tensor's elements in row-major order; they are copied only if they do not lie so.
pub(crate) fn with_floats<R>(tensor: &Tensor, look: impl FnOnce(&[f32]) -> R) -> Result<R> {
    let tensor = tensor.contiguous()?;
    let (storage, layout) = tensor.storage_and_layout();
    let Storage::Cpu(storage) = &*storage else { bail!("not in the memory of the host") };
    let (start, end) = layout.contiguous_offsets().ok_or_else(|| Error::Msg("not contiguous".into()))?;
    Ok(look(&storage.as_slice::<f32>()?[start..end]))
}

/// Replaces the elements of a contiguous tensor of `f32`, given in row-major order. All tensors that share
/// its memory have them, too.
pub(crate) fn write(tensor: &Tensor, values: &[f32]) -> Result<()> {
    tensor.inplace_op1(&Write(values))
}

struct Write<'a>(&'a [f32]);

impl InplaceOp1 for Write<'_> {
    fn name(&self) -> &'static str {
        "kolo-write"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        let (CpuStorage::F32(memory), Some((start, end))) = (storage, layout.contiguous_offsets()) else {
            bail!("not contiguous memory of f32")
        };
        memory[start..end].copy_from_slice(self.0);
        Ok(())
    }
}
