//! The machine that proves schedules, under the worst conditions that a transport allows.
//!
//! A buffer cell holds an expression that records the contributions added and their order. Messages are
//! references that are read only when they are taken (unless a copy is sent), and ranks advance in many
//! different orders. Overwriting a range too early thus yields a wrong expression, and a cycle of waits a
//! deadlock.

use std::collections::VecDeque;
use std::rc::Rc;

use crate::tree::Fold;
use crate::*;

/// Expression in a cell, which copies of the cell share.
pub(super) type Expression = Rc<str>;

/// Message in transit.
enum Item {
    /// Reference to the sender's memory.
    Borrowed(Range),
    Copied(Vec<Expression>),
}

/// Machine whose lanes hold as many untaken messages as a transport guarantees.
struct Machine<'a> {
    schedules: &'a [Schedule],
    /// rank → cell → expression
    memory: Vec<Vec<Expression>>,
    /// to → from → messages
    lanes: Vec<Vec<VecDeque<Item>>>,
    position: Vec<usize>,
}

impl Machine<'_> {
    /// Performs the next step of a rank; returns false if it has to wait.
    fn advance(&mut self, rank: usize) -> bool {
        let Some(step) = self.schedules[rank].steps.get(self.position[rank]) else { return false };
        let possible = match step {
            Step::Send { to, range, copied } => {
                assert_ne!(to.0, rank, "a message to itself");
                let item = match copied {
                    true => Item::Copied(self.memory[rank][range.start..range.end()].to_vec()),
                    false => Item::Borrowed(*range),
                };
                let lane = &mut self.lanes[to.0][rank];
                let room = lane.len() < MAX_UNTAKEN;
                if room {
                    lane.push_back(item);
                }
                room
            }
            Step::Receive { from, range } => match self.take(rank, from.0, range.len) {
                Some(values) => {
                    self.write(rank, *range, values);
                    true
                }
                None => false,
            },
            Step::Copy { from, range } => {
                let values = self.memory[rank][*from..from + range.len].to_vec();
                self.write(rank, *range, values);
                true
            }
            Step::Reduce { range, sources, program, .. } => self.reduce(rank, *range, sources, program),
        };
        self.position[rank] += usize::from(possible);
        possible
    }

    fn reduce(&mut self, rank: usize, range: Range, sources: &[Source], program: &[Fold]) -> bool {
        let wanted = |from: Rank| sources.iter().filter(|s| **s == Source::From(from)).count();
        let ready = (0..self.schedules.len()).all(|from| self.lanes[rank][from].len() >= wanted(Rank(from)));
        if !ready {
            return false;
        }
        let values: Vec<Vec<Expression>> = sources
            .iter()
            .map(|source| match source {
                Source::Own(offset) => self.memory[rank][offset + range.start..offset + range.end()].to_vec(),
                Source::From(from) => self.take(rank, from.0, range.len).expect("checked above"),
            })
            .collect();
        let mut sums: Vec<Expression> = Vec::with_capacity(range.len);
        for i in 0..range.len {
            // Mostly the summands are those of the cell before.
            let is_as_before = i > 0 && values.iter().all(|cells| Rc::ptr_eq(&cells[i], &cells[i - 1]));
            let sum = if is_as_before { sums[i - 1].clone() } else { run(program, |n| values[n][i].clone()) };
            sums.push(sum);
        }
        self.write(rank, range, sums);
        true
    }

    fn take(&mut self, rank: usize, from: usize, len: usize) -> Option<Vec<Expression>> {
        let values = match self.lanes[rank][from].pop_front()? {
            Item::Borrowed(range) => self.memory[from][range.start..range.end()].to_vec(),
            Item::Copied(values) => values,
        };
        assert_eq!(values.len(), len, "rank {rank} takes another length than rank {from} sent");
        Some(values)
    }

    fn write(&mut self, rank: usize, range: Range, values: Vec<Expression>) {
        self.memory[rank][range.start..range.end()].clone_from_slice(&values);
    }

    /// Runs until no rank can advance; `pick` chooses the rank that goes first.
    fn run(&mut self, mut pick: impl FnMut(usize) -> usize) {
        let world = self.schedules.len();
        loop {
            let first = pick(world);
            if !(0..world).any(|i| self.advance((first + i) % world)) {
                break;
            }
        }
        for rank in 0..world {
            let (at, all) = (self.position[rank], self.schedules[rank].steps.len());
            assert_eq!(at, all, "deadlock: rank {rank} waits in {:?}", self.schedules[rank].steps.get(at));
        }
        assert!(self.lanes.iter().flatten().all(VecDeque::is_empty), "untaken messages");
    }
}

/// Runs a program on named values.
pub(super) fn run(program: &[Fold], value: impl Fn(usize) -> Expression) -> Expression {
    let mut stack = Vec::new();
    for step in program {
        match step {
            Fold::Push(n) => stack.push(value(*n)),
            Fold::Add => {
                let (right, left): (Expression, Expression) = (stack.pop().unwrap(), stack.pop().unwrap());
                stack.push(format!("({left}+{right})").into());
            }
        }
    }
    stack.pop().unwrap()
}

/// Orders in which ranks advance: the lowest rank that can move, the highest, or a random one.
fn orders() -> Vec<Box<dyn FnMut(usize) -> usize>> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let random = move |world: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % world
    };
    vec![Box::new(|_| 0), Box::new(|world| world - 1), Box::new(random)]
}

/// Runs the schedules in every order and passes the memory of all ranks to `check`.
pub(super) fn prove(schedules: &[Schedule], memory: &[Vec<Expression>], check: impl Fn(&[Vec<Expression>])) {
    let world = schedules.len();
    for pick in orders() {
        let lanes = (0..world).map(|_| (0..world).map(|_| VecDeque::new()).collect()).collect();
        let mut machine = Machine { schedules, memory: memory.to_vec(), lanes, position: vec![0; world] };
        machine.run(pick);
        check(&machine.memory);
    }
}
