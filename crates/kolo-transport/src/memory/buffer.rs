//! A buffer: elements in a group's memory.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use super::pool::{Block, Pool};
use super::segment::Segment;
use super::shared_memory::{self, BlockInUse};
use crate::element::Element;
use kolo_rendezvous::{Error, InvalidCall};
use kolo_schedule::{DType, Range};

/// Elements in memory that came from a group's [`Pool`].
///
/// Peers on the same host read a buffer in place. It moves into a collective and back out of it, so nothing
/// can touch it while peers read it. The group reuses a dropped buffer's memory for later allocations.
pub struct Buffer<T> {
    block: ManuallyDrop<Block>,
    pool: Arc<Pool>,
    len: usize,
    elements: PhantomData<T>,
}

/// Exclusively held memory of a buffer or slice, without its element type, as a backend sees it.
pub struct Memory<'a> {
    start: NonNull<u8>,
    home: Home<'a>,
    /// Memory that takes what is written to a range of the elements; `None` if this memory takes it.
    result: Option<(NonNull<u8>, Range)>,
    /// Type of the elements.
    pub dtype: DType,
    /// Number of elements.
    pub elements: usize,
    exclusive: PhantomData<&'a mut [u8]>,
}

kolo_schedule::opaque_debug!(Memory<'_> { elements });

/// Pages that hold a [`Memory`].
enum Home<'a> {
    /// Peers cannot read it in place.
    Slice,
    /// The memory begins a buffer's block.
    Buffer(&'a Block),
    /// The memory lies in a block of [`SharedMemory`](super::SharedMemory), from an offset on.
    Shared(BlockInUse, usize),
}

impl<'a> Memory<'a> {
    /// Creates the memory of a slice. Peers read it in place only if it is
    /// [`SharedMemory`](super::SharedMemory).
    #[inline]
    pub fn of_slice<T: Element>(data: &'a mut [T]) -> Self {
        Memory::new(NonNull::from(&mut *data).cast(), data.len(), T::DTYPE, None)
    }

    /// Creates the memory of a slice that stays as it is: what is written to the elements from `start` on
    /// goes to `output`.
    pub fn of_input<T: Element>(input: &'a [T], output: &'a mut [T], start: usize) -> Self {
        let result = (NonNull::from(&mut *output).cast(), Range { start, len: output.len() });
        Memory::new(NonNull::from(input).cast(), input.len(), T::DTYPE, Some(result))
    }

    #[inline]
    fn new(start: NonNull<u8>, elements: usize, dtype: DType, result: Option<(NonNull<u8>, Range)>) -> Self {
        let home = match shared_memory::block_at(start.as_ptr().addr(), elements * dtype.size()) {
            None => Home::Slice,
            Some((block, offset)) => Home::Shared(block, offset),
        };
        Memory { start, home, result, dtype, elements, exclusive: PhantomData }
    }

    /// The memory that takes what is written to a range of the elements, and that range; `None` if this
    /// memory itself takes all.
    #[inline]
    pub fn result(&self) -> Option<(NonNull<u8>, Range)> {
        self.result
    }

    /// Returns the memory as one that peers do not read in place.
    pub fn into_slice(self) -> Self {
        Memory { home: Home::Slice, ..self }
    }

    /// Leaves what is in the memory to peers that may still read it after a failed collective. Whatever its
    /// owner writes from now on, they do not see.
    pub fn leave_to_peers(self) {
        if let Home::Shared(block, _) = self.home {
            block.leave_to_peers();
        }
    }

    /// Address of the first byte; aligned to pages if the memory is a buffer's.
    #[inline]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns `bytes` bytes from `offset` on as a message with this [`Segment::content`].
    #[inline]
    pub fn segment(&self, offset: usize, bytes: usize, content: u64) -> Segment<'_> {
        assert!(offset + bytes <= self.elements * self.dtype.size(), "a segment lies inside its memory");
        // SAFETY: inside the memory, as just checked.
        let start = unsafe { self.start.as_ptr().add(offset).cast_const() };
        let place = match &self.home {
            Home::Slice => None,
            Home::Buffer(block) => Some((*block, offset)),
            Home::Shared(block, first) => Some((block.block(), first + offset)),
        };
        Segment { start, bytes, place, content }
    }
}

impl<T: Element> Buffer<T> {
    /// Allocates a buffer of zeros.
    pub fn zeroed(pool: &Arc<Pool>, len: usize) -> Result<Self, Error> {
        let mut buffer = Self::unspecified(pool, len)?;
        buffer.fill(T::default());
        Ok(buffer)
    }

    /// Allocates a buffer with a copy of `data`.
    pub fn copied(pool: &Arc<Pool>, data: &[T]) -> Result<Self, Error> {
        let mut buffer = Self::unspecified(pool, data.len())?;
        buffer.copy_from_slice(data);
        Ok(buffer)
    }

    /// Allocates a buffer with whatever its memory held before: any bits are a valid `T`.
    pub fn unspecified(pool: &Arc<Pool>, len: usize) -> Result<Self, Error> {
        let size = size_of::<T>();
        let bytes = len.checked_mul(size).ok_or(InvalidCall::BufferTooLarge { elements: len, size })?;
        let block = ManuallyDrop::new(pool.take(bytes)?);
        Ok(Buffer { block, pool: pool.clone(), len, elements: PhantomData })
    }

    /// Returns the buffer's memory without its element type.
    pub fn erased(&mut self) -> Memory<'_> {
        let (start, home) = (self.block.start(), Home::Buffer(&self.block));
        Memory { start, home, result: None, dtype: T::DTYPE, elements: self.len, exclusive: PhantomData }
    }

    /// Gives the buffer up without reusing its memory, because a peer may still be reading it.
    pub fn abandon(self) {
        let (block, pool) = self.into_parts();
        pool.abandon(block);
    }

    /// Returns the block and its pool; the caller gives the block back.
    pub fn into_parts(self) -> (Block, Arc<Pool>) {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: neither field is used again, because the value that would drop them has been forgotten.
        unsafe { (ManuallyDrop::take(&mut this.block), std::ptr::read(&raw const this.pool)) }
    }

    /// Returns true if the buffer came from this pool.
    pub fn belongs_to(&self, pool: &Arc<Pool>) -> bool {
        Arc::ptr_eq(&self.pool, pool)
    }
}

impl<T: Element> Deref for Buffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the block is page-aligned, initialized, at least `len` long, and any bits are a `T`.
        unsafe { std::slice::from_raw_parts(self.block.start().as_ptr().cast(), self.len) }
    }
}

impl<T: Element> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and the block has one owner. Peers read it only while a collective owns it.
        unsafe { std::slice::from_raw_parts_mut(self.block.start().as_ptr().cast(), self.len) }
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        // SAFETY: the block is not used again.
        self.pool.give_back(unsafe { ManuallyDrop::take(&mut self.block) });
    }
}

impl<T: Element> std::fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} {})", self.len, T::DTYPE)
    }
}
