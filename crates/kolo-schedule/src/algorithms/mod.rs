//! Each algorithm has a file and a line in their table. Only *direct* uses servers; all other reductions
//! run [among the workers](among_workers).

mod among_workers;
mod binomial;
mod blocks;
mod direct;
mod double_tree;
mod halving_doubling;
mod hierarchical;
mod one_shot;
mod owned_by_readers;
mod ownership;
mod pipeline;
mod recursive_doubling;
mod ring;
mod steps;

pub(crate) use steps::LINE;

use crate::algorithm::Algorithm;

/// All algorithms. The command line, its help and the tests read this table.
pub static ALGORITHMS: &[Algorithm] = &[
    direct::ALGORITHM,
    one_shot::ALGORITHM,
    halving_doubling::ALGORITHM,
    recursive_doubling::ALGORITHM,
    binomial::ALGORITHM,
    hierarchical::ALGORITHM,
    ring::ALGORITHM,
    double_tree::ALGORITHM,
];
