//! Predicts the time of an all-reduce, by algorithm, over links of 1, 10 and 100 Gbit/s:
//!
//! ```text
//! cargo run -p kolo-plan --example forecast -- [MEGABYTES] [RANKS] [RANKS PER NODE]
//! ```

use kolo_plan::{Cluster, forecast};
use kolo_schedule::{DType, Operation};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |name: &str, otherwise: f64| match arguments.next() {
        None => otherwise,
        Some(text) => text.parse().ok().filter(|number| *number >= 1e-6).unwrap_or_else(|| {
            eprintln!("{name}: {text} is not a number greater than 0");
            std::process::exit(2);
        }),
    };
    let (megabytes, ranks) = (number("MEGABYTES", 100.0), number("RANKS", 16.0).max(1.0) as usize);
    let per_node = number("RANKS PER NODE", 1.0).max(1.0) as usize;
    let len = (megabytes * 1e6) as usize / DType::F32.size();

    println!("all-reduce of {megabytes} MB of f32 on {ranks} ranks, {per_node} to a node");
    for gigabits in [1.0, 10.0, 100.0] {
        let cluster = Cluster::over_ethernet(ranks, per_node, gigabits);
        println!("\n{gigabits} Gbit/s{:>24}{:>14}{:>16}", "ms", "messages", "MB on the link");
        for forecast in forecast(&Operation::AllReduce, len, DType::F32, &cluster) {
            let (name, cost) = (forecast.algorithm.name, forecast.cost);
            let messages = cost.near.messages + cost.far.messages;
            let link = if cost.far.handled > 0.0 { cost.far } else { cost.near };
            let moved = (link.exchanged + link.one_way) * DType::F32.size() as f64 / 1e6;
            let note =
                if forecast.algorithm.keeps_tree { "" } else { "  (bits depend on the number of ranks)" };
            println!("  {name:20}{:12.3}{messages:14.0}{moved:16.3}{note}", forecast.seconds * 1e3);
        }
    }
}
