//! A coordinator's own node: the meeting to which its members come, whoever leads the job.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use super::orders::Order;
use super::talk::Formed;
use super::words::{self, Arrival, Seat};
use kolo_rendezvous::store::Server;

/// See the module's text.
pub(super) struct Home {
    meeting: Arc<Server>,
    /// Members that live here, with the arrivals that have not been answered.
    pub(super) members: BTreeMap<String, Option<Arrival>>,
    /// The last generation that is known here.
    pub(super) formed: Formed,
    /// Members on other nodes.
    pub(super) elsewhere: usize,
    /// This node's number, once it has one.
    pub(super) node: Option<usize>,
    /// Nodes with which the job has begun, once it has.
    pub(super) began: Option<usize>,
    orders: Sender<Order>,
}

impl Home {
    pub(super) fn new(meeting: Arc<Server>, orders: Sender<Order>) -> Home {
        let (members, formed) = (BTreeMap::new(), Formed::default());
        Home { meeting, members, formed, elsewhere: 0, node: None, began: None, orders }
    }

    /// A member has been started here.
    pub(super) fn expect(&mut self, member: &str) {
        self.members.entry(member.into()).or_default();
    }

    /// Members that have come to a meeting since the last call; waits for the first one at most `wait`.
    pub(super) fn take(meeting: &Server, wait: Duration) -> Vec<(String, Arrival)> {
        let read = |(member, text): (String, String)| match serde_json::from_str::<Arrival>(&text) {
            Ok(arrival) => Some((member, arrival)),
            Err(error) => {
                log::warn!("member {member} cannot be understood: {error}");
                None
            }
        };
        meeting.take(words::ARRIVAL, wait).into_iter().filter_map(read).collect()
    }

    /// Members of whose work news has come since the last call, with the CPU time that each one's process has taken.
    pub(super) fn worked(meeting: &Server) -> Vec<(String, Duration)> {
        let read =
            |(member, text): (String, String)| Some((member, Duration::from_millis(text.parse().ok()?)));
        meeting.take(words::WORK, Duration::ZERO).into_iter().filter_map(read).collect()
    }

    /// Lets members know which job they belong to.
    pub(super) fn join(&self, job: u64) {
        self.set(words::JOB, format!("{job:016x}"));
    }

    /// Answers an arrival of a member that lives here.
    pub(super) fn seat(&mut self, member: &str, number: u64, seat: &Seat) {
        if let Some(waits) = self.members.get_mut(member)
            && waits.as_ref().is_some_and(|arrival| arrival.number == number)
        {
            *waits = None;
        }
        match serde_json::to_string(seat) {
            Ok(text) => self.set(&words::seat(member, number), text),
            Err(error) => log::error!("a seat cannot be written: {error}"),
        }
    }

    /// Answers all that wait: there will be no generation for them.
    pub(super) fn refuse(&mut self, why: &str) {
        let waiting: Vec<(String, u64)> =
            self.members.iter().filter_map(|(m, a)| Some((m.clone(), a.as_ref()?.number))).collect();
        for (member, number) in waiting {
            self.seat(&member, number, &Seat::Failed { why: why.into() });
        }
    }

    /// Members of a generation are asked to come to the meeting at the end of a step.
    pub(super) fn change(&self, generation: u64) {
        self.set(&words::change(generation), "1".into());
    }

    /// A generation has begun.
    pub(super) fn form(&mut self, formed: Formed) {
        self.formed = formed.clone();
        let Formed { generation, members, reason } = formed;
        self.order(Order::Formed { generation, members, reason });
    }

    /// Asks something of whoever has started the members here.
    pub(super) fn order(&self, order: Order) {
        // Nobody listens any more when the launcher is about to end.
        let _ = self.orders.send(order);
    }

    fn set(&self, key: &str, value: String) {
        if let Err(why) = self.meeting.set(key, value) {
            log::error!("the coordinator cannot keep `{key}`: {why}");
        }
    }
}
