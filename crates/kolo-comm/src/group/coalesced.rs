//! Sums of many tensors at once.
//!
//! Every collective costs its latency, however short it is, so short tensors share one. A pack is just
//! long enough to make latency negligible, because its reduction overlaps with copying the next pack.

use crate::collective::Collective;
use crate::group::Group;
use kolo_rendezvous::Error;
use kolo_schedule::Op;
use kolo_transport::Element;

/// Bytes from which a pack takes no more tensors: 100 times the bytes of one latency (10 µs at 4 GB/s).
const FULL: usize = 4 * 1024 * 1024;

/// Returns the numbers of consecutive tensors that form one pack each.
fn packs(bytes: impl Iterator<Item = usize>) -> Vec<usize> {
    let (mut packs, mut filled) = (Vec::new(), FULL);
    for bytes in bytes {
        if filled >= FULL {
            packs.push(0);
            filled = 0;
        }
        filled += bytes;
        packs.last_mut().into_iter().for_each(|pack| *pack += 1);
    }
    packs
}

impl Group {
    /// Combines each tensor element by element over all ranks; short tensors travel together. All ranks
    /// pass the same number of tensors with the same lengths.
    ///
    /// ```
    /// # let group = kolo_comm::Group::from_env()?;
    /// let (mut weight, mut bias) = (vec![1.0f32; 1000], vec![2.0f32; 10]);
    /// group.all_reduce_many(&mut [&mut weight[..], &mut bias[..]], kolo_comm::Op::Average)?;
    /// # assert_eq!((weight[999], bias[9]), (1.0, 2.0));
    /// # Ok::<(), kolo_comm::Error>(())
    /// ```
    /// Fails as [`Group::run`] does.
    pub fn all_reduce_many<T: Element>(&self, tensors: &mut [&mut [T]], op: Op) -> Result<(), Error> {
        let packs = packs(tensors.iter().map(|tensor| size_of_val(&**tensor)));
        let mut waiting = Vec::with_capacity(packs.len());
        let mut rest = &mut *tensors;
        for count in packs {
            let (pack, others) = rest.split_at_mut(count);
            rest = others;
            let mut buffer = self.alloc(pack.iter().map(|tensor| tensor.len()).sum())?;
            let mut start = 0;
            for tensor in pack.iter() {
                buffer[start..start + tensor.len()].copy_from_slice(tensor);
                start += tensor.len();
            }
            waiting.push((self.start(Collective::AllReduce(op), buffer), pack));
        }
        for (pending, pack) in waiting {
            let buffer = pending.wait()?;
            let mut start = 0;
            for tensor in pack {
                tensor.copy_from_slice(&buffer[start..start + tensor.len()]);
                start += tensor.len();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_tensors_share_a_pack_and_none_is_lost() {
        assert!(packs(std::iter::empty()).is_empty());
        assert_eq!(packs([0, 0].into_iter()), [2]);
        assert_eq!(packs([4, FULL, 4, 4, FULL - 8, 1].into_iter()), [2, 3, 1]);
    }
}
