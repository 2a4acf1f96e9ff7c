//! The proof: every schedule, run on sets of contributions by a machine that is as unkind as it may be.
//!
//! A buffer cell holds an expression that says which contributions were added and in which order. Messages are
//! references, read only when they are taken, and ranks advance in many different orders, so a range that is
//! overwritten too early shows up as a wrong expression, and a cycle of waits as a deadlock.

use std::collections::VecDeque;

use super::*;

/// The machine's lanes hold as many untaken messages as a transport guarantees.
struct Machine<'a> {
    schedules: &'a [Schedule],
    /// rank → part → cell → expression
    memory: Vec<Vec<Vec<String>>>,
    /// to → from → messages (sender's part and range)
    lanes: Vec<Vec<VecDeque<(usize, Range)>>>,
    position: Vec<usize>,
}

impl Machine<'_> {
    /// Does the next step of a rank, unless it has to wait.
    fn advance(&mut self, rank: usize) -> bool {
        let Some(step) = self.schedules[rank].steps.get(self.position[rank]) else { return false };
        let possible = match step {
            Step::Send { to, part, range } => {
                let lane = &mut self.lanes[to.0][rank];
                let room = lane.len() < MAX_UNTAKEN;
                if room {
                    lane.push_back((*part, *range));
                }
                room
            }
            Step::Receive { from, range } => match self.take(rank, from.0, *range) {
                Some(values) => {
                    self.write(rank, *range, values);
                    true
                }
                None => false,
            },
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
        let values: Vec<Vec<String>> = sources
            .iter()
            .map(|source| match source {
                Source::Own(part) => self.memory[rank][*part][range.start..range.end()].to_vec(),
                Source::From(from) => self.take(rank, from.0, range).expect("checked above"),
            })
            .collect();
        let sums = (0..range.len).map(|i| run(program, |n| values[n][i].clone())).collect();
        self.write(rank, range, sums);
        true
    }

    fn take(&mut self, rank: usize, from: usize, range: Range) -> Option<Vec<String>> {
        let (part, sent) = self.lanes[rank][from].pop_front()?;
        assert_eq!(sent, range, "rank {rank} takes another range than rank {from} sent");
        Some(self.memory[from][part][sent.start..sent.end()].to_vec())
    }

    fn write(&mut self, rank: usize, range: Range, values: Vec<String>) {
        self.memory[rank][0][range.start..range.end()].clone_from_slice(&values);
    }

    /// Runs until nothing moves; `pick` decides whose turn it is.
    fn run(&mut self, mut pick: impl FnMut(usize) -> usize) {
        let world = self.schedules.len();
        loop {
            let first = pick(world);
            let order: Vec<usize> = (0..world).map(|i| (first + i) % world).collect();
            if !order.into_iter().any(|rank| self.advance(rank)) {
                break;
            }
        }
        for rank in 0..world {
            let (at, all) = (self.position[rank], self.schedules[rank].steps.len());
            assert_eq!(at, all, "deadlock: rank {rank} waits in {:?}", self.schedules[rank].steps.get(at));
        }
        assert!(self.lanes.iter().flatten().all(VecDeque::is_empty), "messages nobody took");
    }
}

fn run(program: &[Fold], value: impl Fn(usize) -> String) -> String {
    let mut stack = Vec::new();
    for step in program {
        match step {
            Fold::Push(n) => stack.push(value(*n)),
            Fold::Add => {
                let (right, left): (String, String) = (stack.pop().unwrap(), stack.pop().unwrap());
                stack.push(format!("({left}+{right})"));
            }
        }
    }
    stack.pop().unwrap()
}

/// Whose turn it is: always the lowest rank that can move, always the highest, or at random.
fn orders() -> Vec<Box<dyn FnMut(usize) -> usize>> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let random = move |world: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % world
    };
    vec![Box::new(|_| 0), Box::new(|world| world - 1), Box::new(random)]
}

/// Runs the schedules in every order and hands part 0 of all ranks to `check`.
fn prove(schedules: &[Schedule], memory: &[Vec<Vec<String>>], check: impl Fn(&[&Vec<String>])) {
    let world = schedules.len();
    for pick in orders() {
        let lanes = vec![vec![VecDeque::new(); world]; world];
        let mut machine = Machine { schedules, memory: memory.to_vec(), lanes, position: vec![0; world] };
        machine.run(pick);
        check(&machine.memory.iter().map(|parts| &parts[0]).collect::<Vec<_>>());
    }
}

/// Every cell of a rank's part p holds the name of the node it contributes.
fn contributed(contributions: &Contributions, len: usize) -> Vec<Vec<Vec<String>>> {
    (0..contributions.world())
        .map(|rank| {
            let nodes = contributions.of(Rank(rank));
            let name =
                |part: usize| nodes.get(part).map_or("nothing".into(), |node| format!("{}", node.first));
            (0..contributions.parts(Rank(rank))).map(|part| vec![name(part); len]).collect()
        })
        .collect()
}

fn tree(contributions: &Contributions) -> String {
    let names: Vec<String> = (0..contributions.world())
        .flat_map(|rank| contributions.of(Rank(rank)).iter().map(|node| node.first.to_string()))
        .collect();
    run(&contributions.program(), |n| names[n].clone())
}

/// The contributions in a sum, whatever its parentheses.
fn set(expression: &str) -> Vec<String> {
    let mut names: Vec<String> =
        expression.split(['(', ')', '+']).filter(|name| !name.is_empty()).map(String::from).collect();
    names.sort();
    names
}

#[test]
fn every_all_reduce_adds_everything_once_on_every_rank() {
    for algorithm in ALGORITHMS {
        let mut worlds = 0;
        for world in 1usize..=17 {
            for shards in [world, 2 * world, world + 1, 3 * world - 1, world.div_ceil(2)] {
                let contributions = Contributions::shared(shards, world);
                if (algorithm.supports)(&contributions).is_err() {
                    continue;
                }
                worlds += 1;
                for (len, segment) in [(0, 4), (1, 4), (7, 100), (16 * world + 5, 3), (40 * world, 16)] {
                    let build = |rank| {
                        let problem =
                            Problem { rank: Rank(rank), len, contributions: &contributions, segment };
                        (algorithm.build)(&problem)
                    };
                    let schedules: Vec<Schedule> = (0..world).map(build).collect();
                    let expected = tree(&contributions);
                    prove(&schedules, &contributed(&contributions, len), |ranks| {
                        let at = format!("{} on {world} ranks, {shards} shards", algorithm.name);
                        assert!(ranks.iter().all(|cells| *cells == ranks[0]), "{at}: ranks differ");
                        for cell in ranks[0] {
                            assert_eq!(set(cell), set(&expected), "{at}");
                            assert!(!algorithm.keeps_tree || *cell == expected, "{at}: {cell}");
                        }
                    });
                }
            }
        }
        assert!(worlds > 4, "{} was proved on {worlds} cases only", algorithm.name);
    }
}

#[test]
fn reduce_scatter_leaves_each_rank_its_chunk() {
    for world in 1usize..=17 {
        let contributions = Contributions::one_each(world);
        for (each, segment) in [(0, 4), (1, 4), (13, 5)] {
            let len = each * world;
            let build = |rank| reduce_scatter(Rank(rank), len, &contributions, segment);
            let schedules: Vec<Schedule> = (0..world).map(build).collect();
            let expected = tree(&contributions);
            prove(&schedules, &contributed(&contributions, len), |ranks| {
                for (rank, cells) in ranks.iter().enumerate() {
                    assert!(cells[rank * each..(rank + 1) * each].iter().all(|cell| *cell == expected));
                }
            });
        }
    }
}

#[test]
fn all_gather_and_broadcast_spread_what_was_there() {
    for world in 1usize..=17 {
        let contributions = Contributions::one_each(world);
        for (each, segment) in [(0, 4), (1, 4), (13, 5), (50, 1)] {
            let len = each * world;
            let memory = contributed(&contributions, len);
            let schedules: Vec<Schedule> =
                (0..world).map(|rank| all_gather(Rank(rank), len, world, segment)).collect();
            prove(&schedules, &memory, |ranks| {
                for cells in ranks {
                    cells.iter().enumerate().for_each(|(i, cell)| assert_eq!(*cell, (i / each).to_string()));
                }
            });
            for root in [0, world / 2, world - 1] {
                let schedules: Vec<Schedule> =
                    (0..world).map(|rank| broadcast(Rank(rank), Rank(root), len, world, segment)).collect();
                prove(&schedules, &memory, |ranks| {
                    assert!(ranks.iter().all(|cells| cells.iter().all(|cell| *cell == root.to_string())));
                });
            }
        }
    }
}
