//! Copies that bypass the caches, by non-temporal stores.

use crate::element::Element;

/// Bytes from which a copy bypasses the caches: a fraction of a core's cache. Shorter copies may stay there.
const LONG: usize = 256 << 10;

/// Copies `from` into `to`, bypassing the caches if it is long: for data that is not read soon. The
/// processor then does not read the memory that it overwrites, and its caches keep more useful data. On
/// processors other than x86-64 this is an ordinary copy.
///
/// # Panics
///
/// Panics if the slices differ in length.
pub fn copy_nontemporal<T: Element>(from: &[T], to: &mut [T]) {
    #[cfg(target_arch = "x86_64")]
    if size_of_val(from) >= LONG {
        return stream::copy(from, to);
    }
    to.copy_from_slice(from);
}

#[cfg(target_arch = "x86_64")]
mod stream {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};

    use crate::element::Element;

    /// Bytes of a cache line, the unit of stores that bypass the caches.
    const LINE: usize = 64;

    /// Copies whole lines of `to` with stores that bypass the caches, and its ends with ordinary ones.
    pub(super) fn copy<T: Element>(from: &[T], to: &mut [T]) {
        assert_eq!(from.len(), to.len(), "a copy is as long as its source");
        let head = to.as_ptr().align_offset(LINE).min(to.len());
        let lines = size_of_val(&to[head..]) / LINE;
        let end = head + lines * (LINE / size_of::<T>());
        to[..head].copy_from_slice(&from[..head]);
        to[end..].copy_from_slice(&from[end..]);
        let source = from[head..end].as_ptr().cast::<__m128i>();
        let target = to[head..end].as_mut_ptr().cast::<__m128i>();
        let vectors = lines * (LINE / size_of::<__m128i>());
        // SAFETY: both slices have that many vectors, `target` begins a line, and every x86-64 processor has
        // these instructions. The fence orders the stores before all later ones, as with ordinary stores.
        unsafe {
            for n in 0..vectors {
                _mm_stream_si128(target.add(n), _mm_loadu_si128(source.add(n)));
            }
            _mm_sfence();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_arrives_wherever_it_begins_and_ends() {
        let long = LONG / size_of::<f32>();
        let from: Vec<f32> = (0..long + 100).map(|n| n as f32).collect();
        for (start, len) in
            [(0, 0), (3, 7), (0, long), (1, long), (5, long + 1), (17, long + 83), (16, long + 64)]
        {
            let mut to = vec![-1.0; from.len() + 1];
            copy_nontemporal(&from[start..start + len], &mut to[start + 1..start + 1 + len]);
            assert_eq!(to[start + 1..start + 1 + len], from[start..start + len], "{len} from {start}");
            assert!(to[..=start].iter().chain(&to[start + 1 + len..]).all(|around| *around == -1.0));
        }
    }

    #[test]
    fn elements_may_be_of_any_size() {
        let (bytes, doubles) = (vec![7u8; LONG + 1], vec![0.5f64; LONG / 8 + 1]);
        let (mut to_bytes, mut to_doubles) = (vec![0; bytes.len()], vec![0.0; doubles.len()]);
        copy_nontemporal(&bytes, &mut to_bytes);
        copy_nontemporal(&doubles, &mut to_doubles);
        assert_eq!((to_bytes, to_doubles), (bytes, doubles));
    }

    #[test]
    #[should_panic(expected = "as long as its source")]
    fn another_length_is_refused() {
        copy_nontemporal(&[0u8; LONG], &mut [0; LONG + 1]);
    }
}
