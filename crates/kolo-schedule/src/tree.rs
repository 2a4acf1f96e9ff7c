//! Sums are added in the order of one balanced binary tree over the shards of a batch, on any number of
//! ranks.
//!
//! Floating-point addition is not associative, so a sum is defined only together with its order. Kolo's
//! order is a property of the job (its number of shards), not of the cluster: shards `2k` and `2k+1` are
//! added first, then pairs of pairs, as in a binary counter. A rank may hold any run of consecutive shards;
//! it adds the whole subtrees in that run and contributes one [`Node`] for each.

use std::ops::Range;

use crate::rank::Rank;

/// Sum of a run of shards that is one node of the tree: `count` is a power of two that divides `first`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// First shard.
    pub first: usize,
    /// Number of shards.
    pub count: usize,
}

impl Node {
    /// Returns the leaf of one shard.
    pub fn leaf(shard: usize) -> Self {
        Node { first: shard, count: 1 }
    }

    /// Returns the parent if `self` and `right` are its two children.
    pub fn join(self, right: Node) -> Option<Node> {
        let siblings = self.count == right.count
            && self.first + self.count == right.first
            && self.first.is_multiple_of(2 * self.count);
        siblings.then_some(Node { first: self.first, count: 2 * self.count })
    }
}

/// Returns the smallest set of nodes that covers a run of shards.
pub fn cover(shards: Range<usize>) -> Vec<Node> {
    let mut nodes: Vec<Node> = Vec::new();
    for shard in shards {
        let mut node = Node::leaf(shard);
        while let Some(joined) = nodes.last().and_then(|left| left.join(node)) {
            nodes.pop();
            node = joined;
        }
        nodes.push(node);
    }
    nodes
}

/// Returns the shards of one rank when `shards` are divided among `world` ranks: consecutive runs, in rank
/// order, whose sizes differ by at most one.
pub fn share(shards: usize, world: usize, rank: Rank) -> Range<usize> {
    rank.0 * shards / world..(rank.0 + 1) * shards / world
}

/// Instruction of a stack machine that adds in tree order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fold {
    /// Pushes contribution number `n`.
    Push(usize),
    /// Replaces the two topmost values with their sum.
    Add,
}

/// Returns the program that adds `nodes` (ascending, without gaps) in tree order.
///
/// If the number of shards is not a power of two, the remaining subtrees are added from the right.
pub fn fold(nodes: &[Node]) -> Vec<Fold> {
    let mut program = Vec::with_capacity(2 * nodes.len());
    let mut stack: Vec<Node> = Vec::new();
    for (index, &node) in nodes.iter().enumerate() {
        program.push(Fold::Push(index));
        let mut top = node;
        while let Some(joined) = stack.last().and_then(|left| left.join(top)) {
            stack.pop();
            program.push(Fold::Add);
            top = joined;
        }
        stack.push(top);
    }
    program.extend(std::iter::repeat_n(Fold::Add, stack.len().saturating_sub(1)));
    program
}

/// Nodes that each rank contributes, in rank order.
///
/// A rank's buffer holds its nodes in order as *parts* of equal length; part 0 receives the result.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Contributions {
    nodes: Vec<Vec<Node>>,
    /// Size of each rank's subtree, if every rank contributes one and all have the same size.
    subtree: Option<usize>,
    /// True for each rank that is a server; empty if none is.
    servers: Vec<bool>,
    /// Relative share of a sum that each rank adds; empty if all shares are equal.
    ownership: Vec<u32>,
}

impl Contributions {
    /// Divides `shards` among `world` ranks by [`share`].
    pub fn shared(shards: usize, world: usize) -> Self {
        Self::of_nodes((0..world).map(|rank| cover(share(shards, world, Rank(rank)))).collect())
    }

    /// Gives each rank this number of shards: consecutive runs, in rank order. A rank may have none.
    pub fn of_shares(shares: &[usize]) -> Self {
        let mut first = 0;
        let run = |&count: &usize| {
            first += count;
            cover(first - count..first)
        };
        Self::of_nodes(shares.iter().map(run).collect())
    }

    fn of_nodes(nodes: Vec<Vec<Node>>) -> Self {
        let count = nodes.first().and_then(|nodes| nodes.first()).map_or(0, |node| node.count);
        let equal = |(rank, nodes): (usize, &Vec<Node>)| *nodes == [Node { first: rank * count, count }];
        let subtree = nodes.iter().enumerate().all(equal).then_some(count);
        Contributions { nodes, subtree, servers: Vec::new(), ownership: Vec::new() }
    }

    /// Gives each rank one contribution, as in a plain all-reduce.
    pub fn one_each(world: usize) -> Self {
        Self::shared(world, world)
    }

    /// Marks ranks as *servers*, one flag per rank. A server contributes nothing and owns parts of the sum
    /// while it is computed. Its buffer is unspecified afterward, because a server needs no sum. Ranks with
    /// shards are no servers.
    pub fn with_servers(mut self, servers: &[bool]) -> Self {
        let is_server = |(nodes, server): (&Vec<Node>, &bool)| *server && nodes.is_empty();
        self.servers = self.nodes.iter().zip(servers).map(is_server).collect();
        if !self.has_servers() {
            self.servers.clear();
        }
        self
    }

    /// Sets the relative share of a sum that each rank adds, as
    /// [`ownership_by_rate`](crate::ownership_by_rate) returns it, for ranks whose links differ. Only
    /// *direct* uses it, and only without servers. It decides which rank adds which elements, not the order
    /// of additions, so it does not change the bits. All ranks must pass the same numbers. Numbers that are
    /// all equal, or a list that does not have one number per rank, have no effect.
    pub fn with_ownership(mut self, ownership: &[u32]) -> Self {
        let is_uneven = ownership.windows(2).any(|pair| pair[0] != pair[1]);
        let has_effect = is_uneven && ownership.len() == self.world() && !self.has_servers();
        self.ownership = if has_effect { ownership.to_vec() } else { Vec::new() };
        self
    }

    /// Returns the relative share of a sum that each rank adds, if the shares differ.
    pub fn ownership(&self) -> Option<&[u32]> {
        Some(&self.ownership[..]).filter(|ownership| !ownership.is_empty())
    }

    /// Returns true if some rank is a server.
    pub fn has_servers(&self) -> bool {
        self.servers.contains(&true)
    }

    /// Returns true if a rank is a server.
    pub fn is_server(&self, rank: Rank) -> bool {
        self.servers.get(rank.0) == Some(&true)
    }

    /// Returns the ranks that are not servers.
    pub fn workers(&self) -> impl Iterator<Item = Rank> {
        (0..self.world()).map(Rank).filter(|rank| !self.is_server(*rank))
    }

    pub(crate) fn of_workers(&self) -> Self {
        Self::of_nodes(self.workers().map(|worker| self.nodes[worker.0].clone()).collect())
    }

    /// Returns the number of ranks.
    pub fn world(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the nodes of one rank; empty for a rank without shards.
    pub fn of(&self, rank: Rank) -> &[Node] {
        &self.nodes[rank.0]
    }

    /// Returns the number of shards per rank if each contributes one subtree and all have the same size.
    pub fn one_subtree_each(&self) -> Option<usize> {
        self.subtree
    }

    /// Returns the number of parts in one rank's buffer: at least one, for the result.
    pub fn parts(&self, rank: Rank) -> usize {
        self.nodes[rank.0].len().max(1)
    }

    /// Returns all contributions in tree order, as (rank, part).
    pub fn sources(&self) -> Vec<(Rank, usize)> {
        let of = |(rank, nodes): (usize, &Vec<Node>)| (0..nodes.len()).map(move |part| (Rank(rank), part));
        self.nodes.iter().enumerate().flat_map(of).collect()
    }

    /// Returns the program that adds all contributions in tree order.
    pub fn program(&self) -> Vec<Fold> {
        fold(&self.nodes.concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program on strings, so that the result shows its parentheses.
    fn show(program: &[Fold], leaves: &[String]) -> String {
        let mut stack: Vec<String> = Vec::new();
        for step in program {
            match step {
                Fold::Push(n) => stack.push(leaves[*n].clone()),
                Fold::Add => {
                    let right = stack.pop().unwrap();
                    let left = stack.pop().unwrap();
                    stack.push(format!("({left}+{right})"));
                }
            }
        }
        assert_eq!(stack.len(), 1);
        stack.pop().unwrap()
    }

    fn tree(shards: usize) -> String {
        let leaves: Vec<String> = (0..shards).map(|s| s.to_string()).collect();
        show(&fold(&(0..shards).map(Node::leaf).collect::<Vec<_>>()), &leaves)
    }

    #[test]
    fn the_tree_is_balanced() {
        assert_eq!(tree(1), "0");
        assert_eq!(tree(4), "((0+1)+(2+3))");
        assert_eq!(tree(6), "(((0+1)+(2+3))+(4+5))");
        assert_eq!(tree(7), "(((0+1)+(2+3))+((4+5)+6))");
    }

    /// Each rank adds its own nodes, then the nodes are added across ranks. The tree is always the same.
    #[test]
    fn any_number_of_ranks_adds_in_the_same_order() {
        for shards in 1..=24 {
            for world in 1..=shards + 3 {
                check(&Contributions::shared(shards, world), shards);
            }
        }
    }

    fn check(contributions: &Contributions, shards: usize) {
        let local: Vec<String> = (0..contributions.world())
            .flat_map(|rank| contributions.of(Rank(rank)).to_vec())
            .map(|node| {
                let leaves: Vec<String> =
                    (node.first..node.first + node.count).map(|s| s.to_string()).collect();
                show(&fold(&(0..node.count).map(Node::leaf).collect::<Vec<_>>()), &leaves)
            })
            .collect();
        assert_eq!(show(&contributions.program(), &local), tree(shards), "{contributions:?}");
    }

    #[test]
    fn any_shares_add_in_the_same_order() {
        let equal: Vec<usize> = (0..5).map(|rank| share(13, 5, Rank(rank)).len()).collect();
        assert_eq!(Contributions::of_shares(&equal), Contributions::shared(13, 5));
        // All divisions of up to 11 shards among three ranks.
        for shards in 1..=11 {
            for first in 0..=shards {
                for second in 0..=shards - first {
                    let shares = [first, second, shards - first - second];
                    check(&Contributions::of_shares(&shares), shards);
                }
            }
        }
    }
}
