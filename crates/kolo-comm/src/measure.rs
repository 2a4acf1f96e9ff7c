//! What the network costs, measured when a group forms: a few messages to and fro, in some milliseconds.

use std::time::Instant;

use crate::element::Op;
use crate::error::Error;
use crate::group::Group;
use crate::kernel;
use crate::rank::Rank;
use crate::schedule::{Link, Network};
use crate::tree::Contributions;

/// Elements of the short and of the long message.
const SHORT: usize = 1;
const LONG: usize = 64 * 1024;
/// Messages to and fro of each length.
const ROUNDS: (usize, usize) = (20, 4);

impl Group {
    /// Measures the links between rank 0 and the first rank that shares its memory and the first that does not, and tells
    /// all ranks: they must choose alike.
    pub(crate) fn measured(self) -> Result<Group, Error> {
        let mut network = Network { add_per_byte: add_per_byte(), ..self.network() };
        let topology = self.topology();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let most = topology.nodes().iter().map(Vec::len).max().unwrap_or(1);
        network.crowding = (most as f64 / cores as f64).max(1.0);
        let peer = |near: bool| {
            (1..self.world_size()).map(Rank).find(|peer| topology.together(Rank(0), *peer) == near)
        };
        for (peer, link) in [(peer(true), &mut network.near), (peer(false), &mut network.far)] {
            if let Some(peer) = peer {
                *link = self.link(peer)?.unwrap_or(*link);
            }
        }
        let Network { near, far, add_per_byte, crowding } = network;
        let mut figures = [near.latency, near.per_byte, far.latency, far.per_byte, add_per_byte, crowding];
        self.broadcast(&mut figures, Rank(0))?;
        let [near_latency, near_per_byte, far_latency, far_per_byte, add_per_byte, crowding] = figures;
        let near = Link { latency: near_latency, per_byte: near_per_byte };
        let far = Link { latency: far_latency, per_byte: far_per_byte };
        let network = Network { near, far, add_per_byte, crowding };
        log::debug!("measured {network:?}");
        self.with_engine(|engine| engine.network = network);
        Ok(self)
    }

    /// The link between rank 0 and `peer`; only these two find out.
    fn link(&self, peer: Rank) -> Result<Option<Link>, Error> {
        let other = match self.rank() {
            Rank(0) => peer,
            rank if rank == peer => Rank(0),
            _ => return Ok(None),
        };
        let there_and_back = |len: usize, rounds: usize| -> Result<f64, Error> {
            let mut data = vec![0f32; len];
            let mut best = f64::INFINITY;
            for _ in 0..rounds {
                let mut into = vec![0f32; len];
                let began = Instant::now();
                self.send_receive(&data, other, &mut into, other)?;
                best = best.min(began.elapsed().as_secs_f64());
                data = into;
            }
            Ok(best)
        };
        let short = there_and_back(SHORT, ROUNDS.0)?;
        let long = there_and_back(LONG, ROUNDS.1)?;
        let per_byte = (long - short).max(1e-9) / ((LONG - SHORT) * size_of::<f32>()) as f64;
        Ok(Some(Link { latency: short, per_byte }))
    }
}

/// Seconds to add one byte of `f32` to another.
fn add_per_byte() -> f64 {
    let (mut sum, more) = (vec![0f32; LONG], vec![1f32; LONG]);
    let program = Contributions::one_each(2).program();
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS.1 {
        let began = Instant::now();
        let into = sum.as_mut_ptr();
        // SAFETY: both vectors have that many elements.
        unsafe { kernel::fold(into, &[into.cast_const(), more.as_ptr()], LONG, &program, Op::Sum, None) };
        best = best.min(began.elapsed().as_secs_f64());
    }
    best / (LONG * size_of::<f32>()) as f64
}
