//! Memory of a Python array, by its address.

/// Elements of an array that Python keeps alive while an operation runs. Nothing here checks the address:
/// `kolo/_arrays.py` and `kolo/torch` read it from the array.
#[derive(Clone, Copy, Debug, Default)]
pub struct Region {
    address: usize,
    len: usize,
}

impl Region {
    pub fn new(address: usize, len: usize) -> Region {
        Region { address, len }
    }

    /// Number of elements.
    pub fn len(self) -> usize {
        self.len
    }

    /// Address of the first element.
    pub fn address(self) -> usize {
        self.address
    }

    /// Returns the same memory as `factor` times as many smaller elements.
    pub fn divided(self, factor: usize) -> Region {
        Region { len: self.len * factor, ..self }
    }

    /// Returns true if elements of this type share memory with those of another array.
    pub fn overlaps<T>(self, other: Region) -> bool {
        let end = |region: Region| region.address + region.len * size_of::<T>();
        self.address < end(other) && other.address < end(self)
    }

    /// Returns the elements.
    ///
    /// # Safety
    ///
    /// The array has `len` elements of the type at the address, and nothing writes them meanwhile.
    pub unsafe fn read<'a, T>(self) -> &'a [T] {
        match self.len {
            0 => &[],
            // SAFETY: the caller's promise.
            len => unsafe { std::slice::from_raw_parts(self.address as *const T, len) },
        }
    }

    /// Returns the elements for writing.
    ///
    /// # Safety
    ///
    /// The array has `len` elements of the type at the address, and nothing else reads or writes them
    /// meanwhile.
    pub unsafe fn write<'a, T>(self) -> &'a mut [T] {
        match self.len {
            0 => &mut [],
            // SAFETY: the caller's promise.
            len => unsafe { std::slice::from_raw_parts_mut(self.address as *mut T, len) },
        }
    }

    /// Copies these elements to part `index` of an array, which may be the same memory.
    ///
    /// # Safety
    ///
    /// The array has this type, and more than `index` parts of this length.
    pub unsafe fn copy_to_part<T: Copy>(self, array: Region, index: usize) {
        let (from, to) = (self.address, array.address + index * self.len * size_of::<T>());
        if self.len > 0 && from != to {
            // SAFETY: the caller's promise.
            unsafe { std::ptr::copy(from as *const T, to as *mut T, self.len) }
        }
    }
}
