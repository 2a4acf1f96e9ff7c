//! Simulates a collective: computes when each rank is done, from the times of messages and additions.
//!
//! The model is that of Hockney 1994 with the γ of Thakur, Rabenseifner & Gropp 2005. A message of n
//! elements takes α + n·β; adding n elements to others takes n·γ. A rank sends one message and receives one
//! message at a time, both at once. Between nodes the same holds for a node, whose ranks share its link.
//! Sending does not delay a rank's next step: messages wait at the link. Where the receiver of the first
//! message is busy, another message overtakes it, because connections to several peers do not wait for one
//! another. Messages between two ranks stay in order.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::messages::{Action, Known, Messages, Sent};
use crate::rank::Rank;
use crate::schedule::Schedule;
use crate::topology::Topology;

/// Times of messages over one kind of link.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkTimes {
    /// α: seconds per message, independent of its length.
    pub latency: f64,
    /// β: seconds per element, in one direction.
    pub per_element: f64,
}

/// Times of all actions in a schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Times {
    /// Messages between ranks that share memory.
    pub near: LinkTimes,
    /// Messages between nodes.
    pub far: LinkTimes,
    /// γ: seconds to add one element to another.
    pub add_per_element: f64,
}

/// Returns the seconds until the last rank is done if all start at 0. `schedules` has one entry per rank.
///
/// # Panics
///
/// If a schedule waits for a message that no other schedule sends. The schedules of an
/// [`Algorithm`](crate::Algorithm) are proved not to.
pub fn simulate(schedules: &[Schedule], topology: &Topology, times: &Times) -> f64 {
    let known = |(rank, schedule): (usize, &Schedule)| (Rank(rank), 1.0, schedule.clone());
    let known: Vec<Known> = schedules.iter().enumerate().map(known).collect();
    Simulation::run(&Messages::of(&known, topology), topology, times, |message| message.len).end
}

/// End of a link, where messages pass one after another: a rank's within its node, a node's to other nodes.
#[derive(Clone, Copy, Debug, Default)]
struct Port {
    /// End of the last transmission and of the last reception.
    sending_until: f64,
    receiving_until: f64,
    /// Time spent sending, receiving, and doing both at once.
    sending: f64,
    receiving: f64,
    both: f64,
}

/// Use of the ports of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Usage {
    /// Longest time for which a port both sends and receives.
    pub(crate) both: f64,
    /// Average time for which a port sends or receives, but not both.
    pub(crate) one_way: f64,
}

pub(crate) struct Simulation<'a> {
    messages: &'a Messages,
    topology: &'a Topology,
    times: Times,
    /// Returns the elements of a message that take time.
    counted: fn(&Sent) -> usize,
    /// One port per participant, then one per node.
    ports: Vec<Port>,
    clocks: Vec<Clock>,
    /// Arrival time of each message; NaN before it is sent.
    arrivals: Vec<f64>,
    /// Participants and ports that can proceed, the earliest first.
    ready: BinaryHeap<Reverse<(Moment, Turn)>>,
    /// True if all schedules are known. Otherwise, messages from unknown ranks arrive with this rank's own
    /// last message, and messages leave in the order of its steps.
    is_whole: bool,
    /// Messages that wait to leave each port, with the participants that offer them.
    waiting: Vec<VecDeque<(usize, usize)>>,
    /// Next time at which each port checks its waiting messages; infinite if nothing waits.
    next_check: Vec<f64>,
    /// Time at which the last participant is done.
    pub(crate) end: f64,
}

/// A participant or port that can proceed at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    /// The participant performs its next action.
    Participant(usize),
    /// The port sends its next message.
    Port(usize),
}

/// Progress of a participant.
#[derive(Clone, Copy, Debug, Default)]
struct Clock {
    now: f64,
    /// Number of completed actions, and of messages taken in the next one.
    done: usize,
    taken: usize,
    /// Arrival time of the last message sent.
    last_arrival: f64,
    /// Message that the participant waits for.
    awaits: Option<usize>,
}

/// Time with a total order.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Moment(f64);

impl Eq for Moment {}

impl PartialOrd for Moment {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Moment {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl<'a> Simulation<'a> {
    /// Runs until nothing can proceed.
    pub(crate) fn run(
        messages: &'a Messages,
        topology: &'a Topology,
        times: &Times,
        counted: fn(&Sent) -> usize,
    ) -> Self {
        let participants = messages.participants.len();
        let ports = participants + topology.nodes().len();
        let mut run = Simulation {
            messages,
            topology,
            times: *times,
            counted,
            ports: vec![Port::default(); ports],
            clocks: vec![Clock::default(); participants],
            arrivals: vec![f64::NAN; messages.sent.len()],
            ready: (0..participants).map(|n| Reverse((Moment(0.0), Turn::Participant(n)))).collect(),
            is_whole: participants == topology.world(),
            waiting: vec![VecDeque::new(); ports],
            next_check: vec![f64::INFINITY; ports],
            end: 0.0,
        };
        // The earliest turn goes first, so that links are used in the order of time.
        while let Some(Reverse((Moment(time), turn))) = run.ready.pop() {
            match turn {
                Turn::Participant(participant) => run.advance(participant, time),
                Turn::Port(port) => run.release(port, time),
            }
        }
        let stuck = run.clocks.iter().zip(&messages.participants).find(|(clock, _)| clock.awaits.is_some());
        assert!(stuck.is_none(), "{} waits for ever", stuck.map_or(Rank(0), |(_, waiting)| waiting.rank));
        run.end = run.clocks.iter().map(|clock| clock.now).fold(0.0, f64::max);
        run.end = run.ports.iter().map(|port| port.sending_until).fold(run.end, f64::max);
        run
    }

    /// Returns the use of the nodes' ports if `far`, otherwise of the ranks' own ports.
    pub(crate) fn usage(&self, far: bool) -> Usage {
        let (ranks, nodes) = self.ports.split_at(self.clocks.len());
        let ports = if far { nodes } else { ranks };
        let one_way: f64 = ports.iter().map(|port| port.sending + port.receiving - 2.0 * port.both).sum();
        let both = ports.iter().map(|port| port.both).fold(0.0, f64::max);
        Usage { both, one_way: one_way / ports.len().max(1) as f64 }
    }

    /// Performs a participant's next action, if possible at this time.
    fn advance(&mut self, participant: usize, time: f64) {
        let done = self.clocks[participant].done;
        let Some(action) = self.messages.participants[participant].actions.get(done) else { return };
        let next = match action {
            Action::Send(number) if self.is_whole && self.takes_time(*number) => {
                let port = self.port(participant, self.messages.sent[*number].far);
                self.waiting[port].push_back((participant, *number));
                self.clocks[participant].done += 1;
                self.check(port, time);
                time
            }
            Action::Send(number) => {
                let begin = self.begin(participant, *number);
                if begin <= time {
                    self.send(participant, *number, begin);
                    self.clocks[participant].done += 1;
                }
                begin
            }
            Action::Take { messages, added } => {
                if !self.take(participant, &self.messages.taken[messages.clone()]) {
                    return;
                }
                let clock = &mut self.clocks[participant];
                clock.now += self.times.add_per_element * *added as f64;
                (clock.done, clock.taken) = (clock.done + 1, 0);
                clock.now
            }
        };
        self.ready.push(Reverse((Moment(next), Turn::Participant(participant))));
    }

    /// Schedules a check of a port's waiting messages at this time, unless an earlier check is scheduled.
    fn check(&mut self, port: usize, time: f64) {
        if time < self.next_check[port] {
            self.next_check[port] = time;
            self.ready.push(Reverse((Moment(time), Turn::Port(port))));
        }
    }

    /// Sends the first waiting message whose receiver is free, if the port is free itself.
    fn release(&mut self, port: usize, time: f64) {
        if time < self.next_check[port] {
            return;
        }
        self.next_check[port] = f64::INFINITY;
        let busy_until = |run: &Self, number: usize| {
            let message = &run.messages.sent[number];
            let into = message.receiver.map(|receiver| run.ports[run.port(receiver, message.far)]);
            into.map_or(0.0, |into| into.receiving_until)
        };
        if self.ports[port].sending_until <= time {
            let free = self.waiting[port].iter().position(|(_, number)| busy_until(self, *number) <= time);
            if let Some((participant, number)) = free.and_then(|place| self.waiting[port].remove(place)) {
                self.send(participant, number, time);
            }
        }
        let first = self.waiting[port].iter().map(|(_, number)| busy_until(self, *number));
        let first = first.fold(f64::INFINITY, f64::min).max(self.ports[port].sending_until);
        if first.is_finite() {
            self.check(port, first);
        }
    }

    /// Returns true if a message occupies a link.
    fn takes_time(&self, number: usize) -> bool {
        let message = &self.messages.sent[number];
        self.link(message).per_element > 0.0 && (self.counted)(message) > 0
    }

    fn link(&self, message: &Sent) -> LinkTimes {
        if message.far { self.times.far } else { self.times.near }
    }

    /// Returns the port that a participant's messages over a kind of link pass.
    fn port(&self, participant: usize, far: bool) -> usize {
        let node = self.topology.node_of(self.messages.participants[participant].rank);
        if far { self.clocks.len() + node } else { participant }
    }

    /// Returns when a message can leave: once both ends are free, or at once if it occupies no link.
    fn begin(&self, participant: usize, number: usize) -> f64 {
        if !self.takes_time(number) {
            return self.clocks[participant].now;
        }
        let message = &self.messages.sent[number];
        let leaves =
            self.clocks[participant].now.max(self.ports[self.port(participant, message.far)].sending_until);
        let arrives = |receiver| self.ports[self.port(receiver, message.far)].receiving_until;
        message.receiver.map_or(leaves, |receiver| leaves.max(arrives(receiver)))
    }

    fn send(&mut self, participant: usize, number: usize, begin: f64) {
        let message = &self.messages.sent[number];
        let (link, elements) = (self.link(message), (self.counted)(message) as f64);
        let takes = |participant: usize| {
            let stands_for = self.messages.participants[participant].stands_for;
            elements * link.per_element * if message.far { stands_for } else { 1.0 }
        };
        let left = begin + takes(participant);
        let received = message.receiver.map_or(left, |receiver| begin + takes(receiver));
        let (out, into) =
            (self.port(participant, message.far), message.receiver.map(|at| self.port(at, message.far)));
        // The elements occupy the links only while they pass; the latency comes after.
        self.ports[out].occupy_out(begin, left);
        if let Some(into) = into {
            self.ports[into].occupy_in(begin, received);
        }
        let arrival = left.max(received) + link.latency;
        self.clocks[participant].last_arrival = arrival;
        self.arrivals[number] = arrival;
        if let Some(receiver) = message.receiver
            && self.clocks[receiver].awaits.take_if(|awaited| *awaited == number).is_some()
        {
            let resumes = Moment(self.clocks[receiver].now.max(arrival));
            self.ready.push(Reverse((resumes, Turn::Participant(receiver))));
        }
    }

    /// Waits for messages; returns false if one of them has not been sent yet.
    fn take(&mut self, participant: usize, numbers: &[usize]) -> bool {
        while let Some(&number) = numbers.get(self.clocks[participant].taken) {
            let message = &self.messages.sent[number];
            if message.from_outside {
                self.arrivals[number] = self.arrival_from_outside(participant, message);
            }
            let arrival = self.arrivals[number];
            let clock = &mut self.clocks[participant];
            if arrival.is_nan() {
                clock.awaits = Some(number);
                return false;
            }
            clock.now = clock.now.max(arrival);
            clock.taken += 1;
        }
        true
    }

    /// Returns the arrival time of a message whose sender's schedule is not known. That sender is assumed
    /// to progress like the receiver, so its message arrives with the receiver's own last one, as in all
    /// algorithms in which every rank does the same. It cannot arrive before the receiver's link has
    /// carried everything from outside.
    fn arrival_from_outside(&mut self, participant: usize, message: &Sent) -> f64 {
        let link = self.link(message);
        let stands_for = if message.far { self.messages.participants[participant].stands_for } else { 1.0 };
        let port = self.port(participant, message.far);
        let port = &mut self.ports[port];
        port.receiving += link.per_element * (self.counted)(message) as f64 * stands_for;
        port.both = port.sending.min(port.receiving);
        self.clocks[participant].last_arrival.max(port.receiving + link.latency)
    }
}

impl Port {
    fn occupy_out(&mut self, begin: f64, end: f64) {
        self.both += (end.min(self.receiving_until) - begin).max(0.0);
        self.sending += end - begin;
        self.sending_until = self.sending_until.max(end);
    }

    fn occupy_in(&mut self, begin: f64, end: f64) {
        self.both += (end.min(self.sending_until) - begin).max(0.0);
        self.receiving += end - begin;
        self.receiving_until = self.receiving_until.max(end);
    }
}
