//! Memory that has been freed, which an allocator may keep.

use std::sync::OnceLock;

/// Function of the program's allocator.
static OF_ALLOCATOR: OnceLock<fn()> = OnceLock::new();

/// Registers the function by which the program's allocator gives freed memory back to the operating system.
/// The GNU C library's needs none. The first registration counts.
pub fn set_give_back(function: fn()) {
    let _ = OF_ALLOCATOR.set(function);
}

/// Gives freed memory back to the operating system. An allocator keeps the memory of most tensors for later
/// ones, so without this a worker that gives up a model stays as large as if it still had it. Each page that
/// is used again costs a fault, so this is for the start of a training, and not for its steps. Does nothing
/// with an allocator that is not the GNU C library's and has no function registered ([`set_give_back`]).
pub fn give_back() {
    if let Some(give_back) = OF_ALLOCATOR.get() {
        give_back();
    }
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
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn nothing_in_use_is_given_back() {
        let kept: Vec<Vec<u8>> = (0..64).map(|n| vec![n; 1 << 16]).collect();
        drop((0..64).map(|n| vec![n; 1 << 16]).collect::<Vec<Vec<u8>>>());
        give_back();
        assert!(kept.iter().zip(0..).all(|(bytes, n)| bytes.iter().all(|byte| *byte == n)));
    }
    #[test]
    fn the_allocators_function_is_called() {
        static CALLS: AtomicUsize = AtomicUsize::new(0);
        set_give_back(|| {
            CALLS.fetch_add(1, Ordering::Relaxed);
        });
        set_give_back(|| panic!("the first one counts"));
        let before = CALLS.load(Ordering::Relaxed);
        give_back();
        assert!(CALLS.load(Ordering::Relaxed) > before);
    }
}
