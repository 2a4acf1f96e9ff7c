//! Run folders in the format of `kolo train`.

use std::fs;
use std::path::Path;

/// Writes a run of `steps` steps of 30 ms each, in which rank 1 has died once.
pub fn write_run(folder: &Path, steps: u64) {
    fs::create_dir_all(folder).unwrap();
    let write = |name: &str, text: String| fs::write(folder.join(name), text).unwrap();
    write(
        "config.toml",
        "model = \"small\"\ndata = \"<b>&'mine\"\nnproc = 2\n\n[optimizer]\nname = \"sgd\"\n".into(),
    );
    let line = |step: u64| {
        let loss = 2.3 / (1.0 + step as f64 / 20.0);
        format!(
            "{{\"step\":{step},\"epoch\":{},\"loss\":{loss},\"images\":64,\"learning_rate\":0.1,\"seconds\":0.03,\
             \"comm_seconds\":0.006,\"exposed_comm_seconds\":0.001}}\n",
            step / 50
        )
    };
    write("steps.jsonl", (0..steps).map(line).collect());
    write(
        "metrics.csv",
        "epoch,seconds_per_step,images_per_second,comm_fraction,exposed_comm_fraction,train_loss,test_accuracy,\
         learning_rate\n1,0.03,2000,0.1,0.03,1.5,0.6,0.1\n2,0.03,2000,0.1,0.03,1.1,0.7,0.1\n"
            .into(),
    );
    let bucket =
        |number: u64| format!("{number},{0},{0},{1},{2},{2}\n", 4096 << number, 20 << number, 90 << number);
    write(
        "buckets.csv",
        String::from("bucket,bytes,wire_bytes,p50_us,p95_us,p99_us\n")
            + &(0..12).map(bucket).collect::<String>(),
    );
    let generation = |number: u64, workers: u64, reason: &str| {
        format!(
            "{{\"generation\":{number},\"world_size\":{workers},\"reason\":\"{reason}\",\"formed_unix\":{number}.0,\
             \"first_step\":{},\"first_step_unix\":{number}.5}}\n",
            (number - 1) * steps / 3
        )
    };
    let generations =
        [(1, 2, "the job begins"), (2, 1, "rank 1 was killed by SIGKILL"), (3, 2, "workers come or go")];
    write(
        "generations.jsonl",
        generations.map(|(number, workers, reason)| generation(number, workers, reason)).concat(),
    );
    write(
        "summary.json",
        "{\"world_size\": 2, \"transport\": \"shm\", \"parameters\": 76674, \"train_seconds\": 9.5, \"warnings\": \
         [\"parameter `<script>alert(1)</script>` had no gradient\"]}\n"
            .into(),
    );
}
