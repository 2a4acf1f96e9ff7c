//! Sum of the shards' messages in the order of the tree.

use super::add::add;
use kolo_comm::tree::{Fold, Node, fold};

/// Adds up the values of all shards, block by block.
pub(super) struct TreeSum {
    program: Vec<Fold>,
    /// Partial sums, one after another.
    stack: Vec<f32>,
}

impl TreeSum {
    pub(super) fn new(shards: usize) -> Self {
        TreeSum { program: fold(&(0..shards).map(Node::leaf).collect::<Vec<_>>()), stack: Vec::new() }
    }

    /// Returns the sum of `len` values; `read` writes those of a shard.
    pub(super) fn add(&mut self, len: usize, mut read: impl FnMut(usize, &mut [f32])) -> &mut [f32] {
        let mut depth = 0;
        for step in &self.program {
            match step {
                Fold::Push(shard) => {
                    self.stack.resize(self.stack.len().max((depth + 1) * len), 0.0);
                    read(*shard, &mut self.stack[depth * len..][..len]);
                    depth += 1;
                }
                Fold::Add => {
                    let (left, right) = self.stack[(depth - 2) * len..depth * len].split_at_mut(len);
                    add(left, right);
                    depth -= 1;
                }
            }
        }
        &mut self.stack[..len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_tree() {
        // In the tree (1 + 2⁻²⁴) + (−1 + 0): in another order the sum would not be 0.
        let values = [1.0, 2.0f32.powi(-24), -1.0, 0.0];
        let mut sum = TreeSum::new(4);
        for len in [3, 1] {
            assert!(sum.add(len, |shard, target| target.fill(values[shard])).iter().all(|x| *x == 0.0));
        }
        assert_eq!(TreeSum::new(3).add(2, |shard, target| target.fill(shard as f32 + 1.0)), [6.0, 6.0]);
    }
}
