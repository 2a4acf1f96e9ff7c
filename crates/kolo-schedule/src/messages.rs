//! Numbers the messages of a collective: pairs each rank's sends with the receives of other ranks.
//!
//! Schedules identify a message only by its peer, because messages between two ranks are taken in the order
//! in which they were sent. The numbers save the simulation from searching for messages.

use crate::rank::Rank;
use crate::schedule::{Schedule, Source, Step};
use crate::topology::Topology;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) from: Rank,
    pub(crate) to: Rank,
    pub(crate) len: usize,
    /// Elements of these that are copied: by the sender, once for any number of peers that get the range,
    /// or by a receiver that does not add them in place.
    pub(crate) copied: usize,
    /// True if the message goes from one node to another.
    pub(crate) far: bool,
    /// True if the sender's schedule is not known.
    pub(crate) from_outside: bool,
    /// Participant that takes the message; `None` if the receiver's schedule is not known.
    pub(crate) receiver: Option<usize>,
}

/// Action of a rank that affects other ranks or the rank's own time.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Offers a message, by its number.
    Send(usize),
    /// Waits for messages, by their numbers, and adds this many elements to others.
    Take { messages: std::ops::Range<usize>, added: usize },
}

/// Rank whose schedule is known.
#[derive(Clone, Debug)]
pub(crate) struct Participant {
    pub(crate) rank: Rank,
    /// Number of similar ranks on its node that this rank represents, itself included.
    pub(crate) stands_for: f64,
    pub(crate) actions: Vec<Action>,
}

/// All messages of some ranks, including those exchanged with ranks whose schedules are not known.
#[derive(Clone, Debug)]
pub(crate) struct Messages {
    pub(crate) participants: Vec<Participant>,
    pub(crate) sent: Vec<Sent>,
    /// Message numbers that each [`Action::Take`] waits for.
    pub(crate) taken: Vec<usize>,
}

/// A rank, the number of ranks that it represents, and its schedule.
pub(crate) type Known = (Rank, f64, Schedule);

impl Messages {
    /// Pairs the sends and receives of some ranks. Messages to and from other ranks stay unpaired.
    pub(crate) fn of(known: &[Known], topology: &Topology) -> Self {
        let mut listing = Listing::new(known, topology);
        let participants: Vec<Participant> = known.iter().map(|known| listing.participant(known)).collect();
        let Listing { mut sent, mut taken, mut waits, is_known, .. } = listing;
        // Both sorts are stable: the messages between two ranks keep the order in which they are taken.
        let ends = |message: &Sent| (message.to, message.from);
        let mut offered: Vec<usize> = (0..sent.len()).collect();
        offered.sort_by_key(|&number| ends(&sent[number]));
        waits.sort_by_key(|wait| ends(&wait.message));
        let mut offered = offered.into_iter().peekable();
        for Wait { place, message } in waits {
            while offered.next_if(|&number| ends(&sent[number]) < ends(&message)).is_some() {}
            taken[place] = match offered.next_if(|&number| ends(&sent[number]) == ends(&message)) {
                Some(number) => {
                    sent[number].receiver = message.receiver;
                    sent[number].copied = sent[number].copied.max(message.copied);
                    number
                }
                None => {
                    sent.push(Sent { from_outside: !is_known[message.from.0], ..message });
                    sent.len() - 1
                }
            };
        }
        Messages { participants, sent, taken }
    }

    /// Returns the number of messages over one kind of link that the busiest rank sends and receives.
    pub(crate) fn handled(&self, far: bool) -> usize {
        let of = |participant: &Participant| -> usize {
            let count = |action: &Action| match action {
                Action::Send(number) => usize::from(self.sent[*number].far == far),
                Action::Take { messages, .. } => self.taken[messages.clone()]
                    .iter()
                    .filter(|&&number| self.sent[number].far == far)
                    .count(),
            };
            participant.actions.iter().map(count).sum()
        };
        self.participants.iter().map(of).max().unwrap_or(0)
    }
}

/// Place in [`Messages::taken`] that still lacks its message.
struct Wait {
    place: usize,
    message: Sent,
}

/// Messages of the participants before they are paired.
struct Listing<'a> {
    topology: &'a Topology,
    is_known: Vec<bool>,
    sent: Vec<Sent>,
    taken: Vec<usize>,
    waits: Vec<Wait>,
    participants: usize,
}

impl<'a> Listing<'a> {
    fn new(known: &[Known], topology: &'a Topology) -> Self {
        let mut is_known = vec![false; topology.world()];
        known.iter().for_each(|(rank, ..)| is_known[rank.0] = true);
        let (sent, taken, waits) = (Vec::new(), Vec::new(), Vec::new());
        Listing { topology, is_known, sent, taken, waits, participants: 0 }
    }

    fn message(&self, from: Rank, to: Rank, len: usize) -> Sent {
        let far = !self.topology.together(from, to);
        Sent { from, to, len, copied: 0, far, from_outside: false, receiver: None }
    }

    fn participant(&mut self, (rank, stands_for, schedule): &Known) -> Participant {
        let rank = *rank;
        let mut actions = Vec::with_capacity(schedule.steps.len());
        let mut last_copied = None;
        for step in &schedule.steps {
            match step {
                Step::Send { to, range, copied } => {
                    let first = *copied && last_copied.replace(*range) != Some(*range);
                    actions.push(Action::Send(self.sent.len()));
                    let copied = if first { range.len } else { 0 };
                    self.sent.push(Sent { copied, ..self.message(rank, *to, range.len) });
                }
                Step::Receive { from, range } => {
                    last_copied = None;
                    actions.push(self.take(rank, [*from], range.len, range.len, 0));
                }
                Step::Reduce { range, sources, .. } => {
                    last_copied = None;
                    let from = sources.iter().filter_map(|source| match source {
                        Source::From(from) => Some(*from),
                        Source::Own(_) => None,
                    });
                    let added = range.len * sources.len().saturating_sub(1);
                    actions.push(self.take(rank, from, range.len, 0, added));
                }
                // Only all-to-all copies, a rank's own chunk; that is cheap compared with the rest.
                Step::Copy { .. } => {}
            }
        }
        self.participants += 1;
        Participant { rank, stands_for: *stands_for, actions }
    }

    fn take(
        &mut self,
        rank: Rank,
        sources: impl IntoIterator<Item = Rank>,
        len: usize,
        copied: usize,
        added: usize,
    ) -> Action {
        let first = self.taken.len();
        for from in sources {
            let (receiver, place) = (Some(self.participants), self.taken.len());
            let message = Sent { copied, receiver, ..self.message(from, rank, len) };
            self.waits.push(Wait { place, message });
            self.taken.push(usize::MAX);
        }
        Action::Take { messages: first..self.taken.len(), added }
    }
}
