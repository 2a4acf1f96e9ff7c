//! Every message of a collective gets a number here: a send of one rank meets a receive of another.
//!
//! Schedules name a message by its peer only, because messages between two ranks are taken in the order in
//! which they were sent. Here each gets a number, so that the simulation need not look for it.

use crate::rank::Rank;
use crate::schedule::{Schedule, Source, Step};
use crate::topology::Topology;

/// One message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) from: Rank,
    pub(crate) to: Rank,
    /// Elements.
    pub(crate) len: usize,
    /// Of these, what somebody copies: the sender, once however many peers get the range, or a receiver that
    /// does not add what it reads where it lies.
    pub(crate) copied: usize,
    /// Whether it goes from one node to another.
    pub(crate) far: bool,
    /// Whether the sender's schedule is not known.
    pub(crate) from_outside: bool,
    /// The participant that takes it; none if the receiver's schedule is not known.
    pub(crate) receiver: Option<usize>,
}

/// What a rank does, as far as other ranks and its own time are concerned.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Offers a message, by its number.
    Send(usize),
    /// Waits for messages, by their numbers, and adds so many elements to others.
    Take { messages: std::ops::Range<usize>, added: usize },
}

/// One rank whose schedule is known.
#[derive(Clone, Debug)]
pub(crate) struct Participant {
    pub(crate) rank: Rank,
    /// The number of ranks like this one on its node for which it stands, itself included.
    pub(crate) stands_for: f64,
    pub(crate) actions: Vec<Action>,
}

/// All messages of some ranks, those included that they exchange with ranks whose schedules are not known.
#[derive(Clone, Debug)]
pub(crate) struct Messages {
    pub(crate) participants: Vec<Participant>,
    pub(crate) sent: Vec<Sent>,
    /// For each [`Action::Take`] the numbers of what it waits for.
    pub(crate) taken: Vec<usize>,
}

/// The schedule of one rank, and the number of ranks for which it stands.
pub(crate) type Known = (Rank, f64, Schedule);

impl Messages {
    /// Pairs the sends and receives of some ranks. Messages to and from other ranks stay without a pair.
    pub(crate) fn of(known: &[Known], topology: &Topology) -> Self {
        let mut listing = Listing::new(known, topology);
        let participants: Vec<Participant> = known.iter().map(|known| listing.participant(known)).collect();
        let Listing { mut sent, mut taken, mut waits, is_known, .. } = listing;
        // Both sorts are stable: the messages between two ranks stay in their order, which is that of taking
        // them.
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

    /// Messages over one kind of link that the busiest rank sends and receives.
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

/// A place in [`Messages::taken`] that still lacks its message.
struct Wait {
    place: usize,
    message: Sent,
}

/// The messages of the participants before they are paired.
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
                // Copies inside a buffer are what an all-to-all keeps for itself: cheap beside the rest.
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
