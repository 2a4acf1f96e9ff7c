//! The topology describes which ranks share memory.

use crate::rank::Rank;

/// Assignment of ranks to nodes; ranks of one node share memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Topology {
    nodes: Vec<Vec<Rank>>,
    node_of: Vec<usize>,
}

impl Topology {
    /// Groups ranks by the name of each rank's node. Nodes are numbered in the order of their first ranks.
    pub fn of_names<N: PartialEq>(names: &[N]) -> Self {
        let mut first: Vec<&N> = Vec::new();
        let number = |name| {
            first.iter().position(|known| *known == name).unwrap_or_else(|| {
                first.push(name);
                first.len() - 1
            })
        };
        let node_of: Vec<usize> = names.iter().map(number).collect();
        let count = node_of.iter().max().map_or(0, |last| last + 1);
        let of_node = |node| (0..names.len()).filter(|&r| node_of[r] == node).map(Rank).collect();
        Topology { nodes: (0..count).map(of_node).collect(), node_of }
    }

    /// Puts all ranks on one node.
    pub fn single(world: usize) -> Self {
        Self::of_names(&vec![(); world])
    }

    /// Puts every rank on its own node.
    pub fn separate(world: usize) -> Self {
        Self::of_names(&(0..world).collect::<Vec<_>>())
    }

    /// Returns the number of ranks.
    pub fn world(&self) -> usize {
        self.node_of.len()
    }

    /// Returns the ranks of each node, ascending.
    pub fn nodes(&self) -> &[Vec<Rank>] {
        &self.nodes
    }

    /// Returns the number of a rank's node.
    pub fn node_of(&self, rank: Rank) -> usize {
        self.node_of[rank.0]
    }

    /// Returns true if two ranks share memory.
    pub fn together(&self, a: Rank, b: Rank) -> bool {
        self.node_of(a) == self.node_of(b)
    }

    /// Returns the node size if all nodes have the same size and consist of consecutive ranks.
    pub fn regular(&self) -> Option<usize> {
        let size = self.nodes.first()?.len();
        let consecutive = (0..self.world()).all(|rank| self.node_of[rank] == rank / size);
        (consecutive && self.world().is_multiple_of(size)).then_some(size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_numbered_by_their_first_rank() {
        let topology = Topology::of_names(&["b", "a", "b", "c"]);
        assert_eq!(topology.nodes(), [vec![Rank(0), Rank(2)], vec![Rank(1)], vec![Rank(3)]]);
        assert!(topology.together(Rank(0), Rank(2)) && !topology.together(Rank(0), Rank(1)));
        assert_eq!(topology.regular(), None);
    }

    #[test]
    fn regular_nodes() {
        assert_eq!(Topology::of_names(&[0, 0, 1, 1]).regular(), Some(2));
        assert_eq!(Topology::of_names(&[0, 0, 1]).regular(), None);
        assert_eq!(Topology::of_names(&[0, 1, 0, 1]).regular(), None);
        assert_eq!(Topology::single(5).regular(), Some(5));
        assert_eq!(Topology::separate(5).regular(), Some(1));
    }
}
