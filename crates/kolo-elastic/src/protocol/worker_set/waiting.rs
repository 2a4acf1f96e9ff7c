//! Description of the members that the waiting workers wait for.

use kolo_schedule::words::counted;

use super::state::{Status, WorkerRecord, WorkerSet};
use crate::member_name::node_rank_of;
use crate::protocol::missing::list;

impl WorkerSet {
    /// Describes, as a sentence, which members the waiting workers wait for; `None` if no worker waits, or
    /// the next generation can be formed.
    pub(crate) fn waits_for(&self) -> Option<String> {
        let names = |is: fn(Status) -> bool| {
            self.workers.iter().filter(move |(_, worker)| is(worker.status)).map(|(member, _)| member.clone())
        };
        names(|status| matches!(status, Status::Waiting(_))).next()?;
        let (started, participating) = (
            || names(|status| status == Status::Started),
            || names(|status| status == Status::Participating),
        );
        let (generation, min) = (self.generation, self.policy.min_members);
        if generation == 0 && started().next().is_some() {
            let who = list(started());
            let nodes = |status: fn(Status) -> bool| names(status).filter_map(|member| node_rank_of(&member));
            let come: Vec<usize> = nodes(|status| matches!(status, Status::Waiting(_))).collect();
            // Workers of a group that no death may change meet without a coordinator.
            let hint = match nodes(|status| status == Status::Started).all(|node| !come.contains(&node)) {
                true => "; is the command the same on all nodes, with its --shard?",
                false => "",
            };
            return Some(format!("workers have been started and have not arrived: {who}{hint}"));
        }
        if participating().next().is_some() {
            let who = list(participating());
            let stopped = |worker: &WorkerRecord| worker.status == Status::Participating && worker.is_stopped;
            let stopped = self.workers.iter().filter(|(_, worker)| stopped(worker));
            let stopped = list(stopped.map(|(member, _)| member.clone()));
            return Some(match self.ended {
                Some(_) if !stopped.is_empty() => format!(
                    "workers have not come back from generation {generation}: {who}; stopped by a signal until \
                     SIGCONT: {stopped}"
                ),
                Some(_) => format!("workers have not come back from generation {generation}: {who}"),
                None => format!("newcomers wait until generation {generation} has ended its step: {who}"),
            });
        }
        let present = self.present();
        (present < min).then(|| format!("{present} of at least {} (--min) are there", counted(min, "worker")))
    }
}
