//! The launchers of a job: who may come, who leads, who leads next. Decisions alone, without connections.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// How many launchers a job has, and how they get their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    /// Launchers that must be there before the job begins.
    pub(super) min: usize,
    /// Launchers that may be there.
    pub(super) max: usize,
}

/// One launcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Peer {
    /// Tells it from all other launchers, also from earlier ones of its node.
    pub(super) id: u64,
    /// The number of its node.
    pub(super) node: usize,
    /// Where the others reach it.
    pub(super) address: SocketAddr,
}

/// The launchers that live, in the order in which they have come. The first leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Roll {
    /// The job's name, which tells it from others at the same place.
    pub(super) job: String,
    /// The launcher that has begun it, which tells it from earlier ones there.
    pub(super) founder: u64,
    /// Counts those who have led, from 1. Of two that lead the one with the higher reign is right.
    pub(super) reign: u64,
    /// Nodes with which the job has begun; `None` before.
    pub(super) began: Option<usize>,
    /// Its work is done somewhere: whoever comes now wants another job at the same place.
    pub(super) over: bool,
    pub(super) peers: Vec<Peer>,
}

/// What is left to do for a launcher that has lost the one that leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Heir {
    /// It leads now.
    Me,
    /// This one does.
    Other(Peer),
}

impl Roll {
    /// A job that `founder` begins.
    pub(super) fn new(job: &str, founder: Peer) -> Roll {
        Roll {
            job: job.into(),
            founder: founder.id,
            reign: 1,
            began: None,
            over: false,
            peers: vec![founder],
        }
    }

    pub(super) fn leader(&self) -> Option<&Peer> {
        self.peers.first()
    }

    /// Lets a launcher in that wishes for a number of its own, or takes the lowest one that is free. Gives its number, or says
    /// why it cannot come: the rest of a sentence that begins with the job.
    pub(super) fn admit(
        &mut self,
        id: u64,
        address: SocketAddr,
        wish: Option<usize>,
        terms: Terms,
    ) -> Result<usize, String> {
        if let Some(known) = self.peers.iter().find(|peer| peer.id == id) {
            return Ok(known.node);
        }
        let taken = |node: usize| self.peers.iter().find(|peer| peer.node == node);
        if self.peers.len() >= terms.max {
            return Err(format!("has {} launchers, which is all that it may have (--nnodes)", terms.max));
        }
        let node = match wish {
            Some(node) => node,
            None => (0..=self.peers.len()).find(|node| taken(*node).is_none()).unwrap_or(self.peers.len()),
        };
        if let Some(other) = taken(node) {
            return Err(format!(
                "has a node {node} already, at {}; give each its own --node-rank",
                other.address
            ));
        }
        self.peers.push(Peer { id, node, address });
        Ok(node)
    }

    /// A launcher has gone. False if it was not there.
    pub(super) fn remove(&mut self, id: u64) -> bool {
        let before = self.peers.len();
        self.peers.retain(|peer| peer.id != id);
        self.peers.len() < before
    }

    /// Whether the job begins now that these are there; then it has begun for good.
    pub(super) fn begin(&mut self, terms: Terms) -> bool {
        let begins = self.began.is_none() && self.peers.len() >= terms.min;
        if begins {
            self.began = Some(self.peers.len());
        }
        begins
    }

    /// The one that leads is gone: strikes it out and says who leads now, as `own` sees it.
    pub(super) fn succeed(&mut self, own: u64) -> Heir {
        if !self.peers.is_empty() {
            self.peers.remove(0);
        }
        match self.leader() {
            Some(peer) if peer.id != own => Heir::Other(peer.clone()),
            _ => {
                self.reign += 1;
                Heir::Me
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms = Terms { min: 2, max: 3 };

    fn at(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    fn roll(count: usize) -> Roll {
        let mut roll = Roll::new("job", Peer { id: 10, node: 0, address: at(1) });
        for n in 1..count {
            assert_eq!(roll.admit(10 + n as u64, at(1 + n as u16), None, TERMS), Ok(n));
        }
        roll
    }

    #[test]
    fn a_job_begins_when_enough_are_there_and_once() {
        let mut roll = roll(1);
        assert!(!roll.begin(TERMS));
        roll.admit(11, at(2), None, TERMS).unwrap();
        assert!(roll.begin(TERMS) && !roll.begin(TERMS));
        roll.admit(12, at(3), None, TERMS).unwrap();
        assert_eq!(roll.began, Some(2), "whoever comes later has not begun it");
    }

    #[test]
    fn no_more_come_than_may_and_none_twice() {
        let mut roll = roll(2);
        assert_eq!(roll.admit(11, at(2), None, TERMS), Ok(1), "it asks again");
        let twice = roll.admit(12, at(3), Some(1), TERMS).unwrap_err();
        assert!(twice.contains("node 1") && twice.contains("127.0.0.1:2"), "{twice}");
        assert_eq!(roll.admit(12, at(3), Some(2), TERMS), Ok(2));
        let many = roll.admit(13, at(4), None, TERMS).unwrap_err();
        assert!(many.contains("--nnodes"), "{many}");
    }

    #[test]
    fn a_number_that_is_free_again_is_given_again() {
        let mut roll = roll(3);
        assert!(roll.remove(11) && !roll.remove(11));
        assert_eq!(roll.admit(20, at(9), None, TERMS), Ok(1));
        let order: Vec<u64> = roll.peers.iter().map(|peer| peer.id).collect();
        assert_eq!(order, [10, 12, 20], "but it leads last");
    }

    #[test]
    fn the_next_in_line_leads_and_all_agree_on_who_that_is() {
        let mut seen_by_the_second = roll(3);
        let mut seen_by_the_third = seen_by_the_second.clone();
        let second = seen_by_the_second.peers[1].clone();
        assert_eq!(seen_by_the_second.succeed(11), Heir::Me);
        assert_eq!(seen_by_the_second.reign, 2);
        assert_eq!(seen_by_the_third.succeed(12), Heir::Other(second));
        assert_eq!(seen_by_the_third.reign, 1, "the one that leads counts");
        assert_eq!(seen_by_the_third.succeed(12), Heir::Me);
    }
}
