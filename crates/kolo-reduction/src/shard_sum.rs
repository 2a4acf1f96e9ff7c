//! One rank's contributions to a sum over all shards, such as that of a bucket's gradients: one sum for each
//! node of the tree that the rank's shards form.
//!
//! Works like a binary counter. The shard being computed has the slot behind the finished nodes. When it is
//! complete it joins its left sibling, if that is there, and so on. The remaining slots at the end are the
//! rank's contributions, in the order and place that the tree sum needs.

use std::ops::Range;

use kolo_comm::tree::Node;
use kolo_comm::{Buffer, Error, Group, Number, copy_nontemporal};

/// The sums of one rank's shards so far, one for each node of the tree that they form. The buffer is `None`
/// while it is being reduced.
pub struct ShardSum<T = f32> {
    buffer: Option<Buffer<T>>,
    len: usize,
    nodes: Vec<Node>,
}

kolo_comm::opaque_debug!([T] ShardSum<T> { len });

/// Largest number of nodes that a rank holds at once while it goes through `shards`.
fn depth(shards: Range<usize>) -> usize {
    let mut nodes: Vec<Node> = Vec::new();
    let mut deepest = 1;
    for shard in shards {
        nodes.push(Node::leaf(shard));
        deepest = deepest.max(nodes.len());
        while join(&mut nodes) {}
    }
    deepest
}

/// Joins the last two nodes, if they are siblings.
fn join(nodes: &mut Vec<Node>) -> bool {
    let [.., left, right] = nodes[..] else { return false };
    let Some(parent) = left.join(right) else { return false };
    nodes.truncate(nodes.len() - 2);
    nodes.push(parent);
    true
}

impl<T: Number> ShardSum<T> {
    /// Allocates the sums of `shards`, of `len` elements each. Fails if memory runs out.
    pub fn new(group: &Group, len: usize, shards: Range<usize>) -> Result<Self, Error> {
        let buffer = group.alloc(len * depth(shards))?;
        Ok(ShardSum { buffer: Some(buffer), len, nodes: Vec::new() })
    }

    /// Allocates the sums as [`ShardSum::new`] does, for a caller that puts every element of each shard.
    /// Without shards they are zeros. Fails if memory runs out.
    pub fn unspecified(group: &Group, len: usize, shards: Range<usize>) -> Result<Self, Error> {
        if shards.is_empty() {
            return Self::new(group, len, shards);
        }
        let buffer = group.alloc_unspecified(len * depth(shards))?;
        Ok(ShardSum { buffer: Some(buffer), len, nodes: Vec::new() })
    }

    /// Begins the next step.
    pub(crate) fn reset(&mut self) {
        self.nodes.clear();
    }

    /// Takes a gradient for elements `offset ..` of the current shard; adds it to the earlier ones unless it
    /// is the first.
    pub fn put(&mut self, offset: usize, gradient: &[T], first: bool) {
        let start = self.nodes.len() * self.len + offset;
        let target = &mut self.here()[start..start + gradient.len()];
        if first {
            target.copy_from_slice(gradient);
        } else {
            target.iter_mut().zip(gradient).for_each(|(sum, g)| *sum = sum.add(*g));
        }
    }

    /// Takes a first gradient as [`ShardSum::put`] does, bypassing the cache: nothing reads it soon.
    pub(crate) fn put_for_later(&mut self, offset: usize, gradient: &[T]) {
        let start = self.nodes.len() * self.len + offset;
        copy_nontemporal(gradient, &mut self.here()[start..start + gradient.len()]);
    }

    /// Sets a span without any gradient in the current shard to zero.
    pub fn put_zeros(&mut self, offset: usize, len: usize) {
        let start = self.nodes.len() * self.len + offset;
        self.here()[start..start + len].fill(T::default());
    }

    /// Ends a shard: adds it to its siblings that are complete.
    pub fn end_shard(&mut self, shard: usize) {
        self.nodes.push(Node::leaf(shard));
        while join(&mut self.nodes) {
            self.add_slot(self.nodes.len());
        }
    }

    fn add_slot(&mut self, right: usize) {
        let len = self.len;
        let (left, right) = self.here()[(right - 1) * len..(right + 1) * len].split_at_mut(len);
        left.iter_mut().zip(right).for_each(|(sum, x)| *sum = sum.add(*x));
    }

    /// Adds all of this rank's sums into the first slot, for a step that is not synchronized.
    pub fn fold(&mut self) {
        (1..self.nodes.len()).rev().for_each(|slot| self.add_slot(slot));
    }

    /// Takes the buffer, with this rank's contributions one after another, for a collective.
    pub fn take(&mut self) -> Buffer<T> {
        self.buffer.take().expect("a bucket is reduced once a step")
    }

    /// Number of elements of the buffer; 0 while it is away.
    pub fn size(&self) -> usize {
        self.buffer.as_ref().map_or(0, |buffer| buffer.len())
    }

    /// Returns true if the buffer has been taken and not returned.
    pub(crate) fn is_away(&self) -> bool {
        self.buffer.is_none()
    }

    /// Returns the buffer that [`ShardSum::take`] took.
    pub fn give_back(&mut self, buffer: Buffer<T>) {
        self.buffer = Some(buffer);
    }

    /// The first slot: the sum, once the collective or [`ShardSum::fold`] is over.
    pub fn result(&mut self) -> &mut [T] {
        let len = self.len;
        &mut self.here()[..len]
    }

    fn here(&mut self) -> &mut Buffer<T> {
        self.buffer.as_mut().expect("a bucket is not touched while it is being reduced")
    }
}

#[cfg(test)]
mod tests {
    use kolo_comm::tree::{cover, share};
    use kolo_comm::{Group, Rank};

    use super::*;

    #[test]
    fn ends_with_the_nodes_of_the_tree() {
        let group = Group::alone();
        for shards in 1..20 {
            for world in 1..=shards {
                for rank in 0..world {
                    let own = share(shards, world, Rank(rank));
                    let mut sum = ShardSum::new(&group, 1, own.clone()).unwrap();
                    for shard in own.clone() {
                        sum.put_zeros(0, 1);
                        sum.put(0, &[shard as f32], true);
                        sum.put(0, &[0.5], false);
                        sum.end_shard(shard);
                    }
                    assert_eq!(sum.nodes, cover(own.clone()));
                    let expected: Vec<f32> = cover(own)
                        .iter()
                        .map(|node| (node.first..node.first + node.count).map(|s| s as f32 + 0.5).sum())
                        .collect();
                    assert_eq!(sum.take()[..expected.len()], expected);
                }
            }
        }
    }
}
