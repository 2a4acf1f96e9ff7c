//! Memory that has been freed, which an allocator may keep.

/// Gives freed memory back to the operating system. An allocator keeps the memory of most tensors for later
/// ones, so without this a worker that gives up a model stays as large as if it still had it. Does nothing
/// with other allocators than that of the GNU C library.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    {
        unsafe extern "C" {
            /// See malloc_trim(3).
            safe fn malloc_trim(pad: usize) -> i32;
        }
        // It returns 0 if there is nothing to give back.
        let _ = malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_use_is_given_back() {
        let kept: Vec<Vec<u8>> = (0..64).map(|n| vec![n; 1 << 16]).collect();
        drop((0..64).map(|n| vec![n; 1 << 16]).collect::<Vec<Vec<u8>>>());
        give_back();
        assert!(kept.iter().zip(0..).all(|(bytes, n)| bytes.iter().all(|byte| *byte == n)));
    }
}
