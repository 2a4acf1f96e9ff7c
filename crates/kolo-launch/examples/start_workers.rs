//! Starts two workers of a program and forwards their output; by default, each is a shell that prints its
//! rank. To run another program: `cargo run -p kolo-launch --example start_workers -- python train.py`.

use kolo_launch::{Job, run};

fn main() {
    let given: Vec<_> = std::env::args_os().skip(1).collect();
    let script = r#"echo "rank $RANK of $WORLD_SIZE, the store is at $MASTER_ADDR:$MASTER_PORT""#;
    let job = match given.is_empty() {
        true => Job::new(["sh", "-c", script], 2),
        false => Job::new(given, 2),
    };
    if let Err(error) = run(&job) {
        eprintln!("error: {error}");
        std::process::exit(error.exit_code().into());
    }
}
