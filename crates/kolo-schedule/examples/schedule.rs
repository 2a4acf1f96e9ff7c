//! Prints the schedule of an algorithm and its cost, as tables:
//!
//! ```text
//! cargo run -p kolo-schedule --example schedule -- [ALGORITHM] [OPERATION] [RANKS] [ELEMENTS]
//! ```

use kolo_schedule::tree::Contributions;
use kolo_schedule::{
    ALGORITHMS, Algorithm, Chunks, Cost, Operation, OperationKind, Problem, Range, Rank, ReadBlock, Source,
    Step, Topology,
};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut next = |otherwise: &str| arguments.next().unwrap_or(otherwise.into());
    let (name, operation) = (next("halving-doubling"), next("all-reduce"));
    let (ranks, elements) = (number("RANKS", &next("4")), number("ELEMENTS", &next("256")));
    let Some(algorithm) = ALGORITHMS.iter().find(|algorithm| algorithm.name == name) else {
        let known: Vec<&str> = ALGORITHMS.iter().map(|algorithm| algorithm.name).collect();
        fail(&format!("{name}: give one of {}", known.join(", ")));
    };
    let operation = match operation.parse() {
        Ok(OperationKind::AllReduce) => Operation::AllReduce,
        Ok(OperationKind::ReduceScatter) => Operation::ReduceScatter(Chunks::Equal),
        // Each rank and the next one read a block.
        Ok(OperationKind::ReduceToReaders) => {
            let block = |rank| ReadBlock {
                len: (rank + 1) * elements / ranks - rank * elements / ranks,
                readers: if rank + 1 < ranks {
                    [Rank(rank), Rank(rank + 1)].into()
                } else {
                    [Rank(rank)].into()
                },
            };
            Operation::ReduceToReaders((0..ranks).map(block).collect())
        }
        Ok(OperationKind::AllGather) => Operation::AllGather(Chunks::Equal),
        Ok(OperationKind::Broadcast) => Operation::Broadcast(Rank(0)),
        Ok(OperationKind::Reduce) => Operation::Reduce(Rank(0)),
        Ok(OperationKind::Gather) => Operation::Gather(Rank(0)),
        Ok(OperationKind::Scatter) => Operation::Scatter(Rank(0)),
        Ok(OperationKind::AllToAll | OperationKind::Exchange) => {
            fail("the messages of all-to-all and send-receive are each rank's own: give another operation")
        }
        Err(_) => fail(&format!("{operation}: give an operation such as all-reduce or broadcast")),
    };
    print(algorithm, &operation, ranks, elements);
}

fn number(name: &str, text: &str) -> usize {
    match text.parse() {
        Ok(number) if number > 0 => number,
        _ => fail(&format!("{name} {text}: give a whole number greater than 0")),
    }
}

fn fail(why: &str) -> ! {
    eprintln!("{why}");
    std::process::exit(2)
}

/// Prints each rank's steps and the total cost.
fn print(algorithm: &Algorithm, operation: &Operation, ranks: usize, elements: usize) {
    let len =
        if operation.kind().properties().in_chunks { elements.next_multiple_of(ranks) } else { elements };
    let (contributions, topology) = (&Contributions::one_each(ranks), &Topology::single(ranks));
    let problem = Problem { operation, rank: Rank(0), len, contributions, topology, segment: len };
    println!("{} of {len} elements by {} on {ranks} ranks", operation.kind().name(), algorithm.name);
    for rank in (0..ranks).map(Rank) {
        let problem = problem.seen_by(rank).unwrap_or_else(|| problem.clone());
        let schedule = (algorithm.build)(&problem).unwrap_or_else(|why| fail(why));
        println!("\n{rank}");
        schedule.steps.iter().for_each(|step| println!("  {}", describe(step)));
    }
    let Cost { near, added, .. } = Cost::of(algorithm, &problem).unwrap_or_else(|why| fail(why));
    println!("\non the critical path");
    for (what, count) in [
        ("messages one after another", near.messages),
        ("messages of the busiest rank", near.handled),
        ("elements both ways at once", near.exchanged),
        ("elements one way", near.one_way),
        ("of these added where they lie", near.read_in_place),
        ("elements added", added),
    ] {
        println!("  {what:32}{count:12.0}");
    }
}

fn describe(step: &Step) -> String {
    let elements = |range: &Range| format!("[{}..{}]", range.start, range.start + range.len);
    match step {
        Step::Send { to, range, copied } => {
            let how = if *copied { ", as a copy" } else { "" };
            format!("send    {:12} to {to}{how}", elements(range))
        }
        Step::Receive { from, range } => format!("receive {:12} from {from}", elements(range)),
        Step::Copy { from, range } => format!("copy    {:12} from element {from}", elements(range)),
        Step::Reduce { range, sources, complete, .. } => {
            let source = |source: &Source| match source {
                Source::Own(0) => "its own".to_string(),
                Source::Own(offset) => format!("its own, {offset} further on"),
                Source::From(rank) => rank.to_string(),
            };
            let sources: Vec<String> = sources.iter().map(source).collect();
            let whole = if *complete { ", which is the whole sum" } else { "" };
            format!("add     {:12} of {}{whole}", elements(range), sources.join(" + "))
        }
    }
}
