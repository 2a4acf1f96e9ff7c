//! `kolo bench`: the measurements match their descriptions.

use super::program::succeed;

#[test]
fn what_a_tree_sends_beside_a_ring() {
    let folder = tempfile::tempdir().unwrap();
    let words = "bench exact --nproc 3 --shards 8 --sizes 98304,196608 --model small --batch-size 2 --image-size 8 --rounds 1 --steps 1";
    let args: Vec<&str> = words.split(' ').chain(["--json", "--transport", "tcp"]).collect();
    let report: serde_json::Value = serde_json::from_str(&succeed(folder.path(), &args)).unwrap();
    let sums = report["sums"].as_array().unwrap();
    assert!(sums.iter().all(|row| row["order"] == "ring" || row["algorithm"] != "ring"));
    let sent = |order: &str, shards: u64| {
        let row = sums.iter().find(|row| row["order"] == order && row["shards"] == shards).unwrap();
        assert!(row["seconds"].as_f64().unwrap() > 0.0);
        row["sent_bytes"].as_u64().unwrap()
    };
    // A ring sends 2 (N - 1) / N of the buffer, which is the least. Of 8 shards two ranks hold runs of 3,
    // which are two subtrees, so they send more.
    let least = 2 * 98304 * 2 / 3;
    assert_eq!(sent("ring", 3), least);
    assert!(sent("tree", 3) >= least && sent("tree", 8) >= least * 3 / 2);
    let steps = report["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 4);
    assert!(steps.iter().all(|row| row["to_plain"][1].as_f64().unwrap() > 0.0));
}

/// The run itself verifies every element.
#[test]
fn slices_are_measured_like_buffers() {
    let folder = tempfile::tempdir().unwrap();
    for (memory, operation) in [("buffer", "all-reduce"), ("slice", "all-reduce"), ("slice", "all-to-all")] {
        let words =
            format!("bench {operation} --memory {memory} --nproc 3 --sizes 12,3000000 --seconds 0.05");
        let args: Vec<&str> = words.split(' ').chain(["--json"]).collect();
        let report: serde_json::Value = serde_json::from_str(&succeed(folder.path(), &args)).unwrap();
        assert_eq!(report["memory"], memory);
        assert_eq!(report["rows"].as_array().unwrap().len(), 2);
    }
}

/// A language model reads windows of random bytes.
#[test]
fn a_language_model_is_measured_too() {
    let folder = tempfile::tempdir().unwrap();
    let words = "bench profile --model gpt2:tiny --batch-size 1 --nproc 1 --blocks 1 --steps 1";
    let args: Vec<&str> = words.split(' ').collect();
    let report: serde_json::Value = serde_json::from_str(&succeed(folder.path(), &args)).unwrap();
    let buckets = report["profile"]["buckets"].as_array().unwrap();
    let bytes: f64 = buckets.iter().map(|bucket| bucket["bytes"].as_f64().unwrap()).sum();
    // 12 width² + 13 width in each of 4 blocks, the last normalization, 256 positions and 257 tokens.
    let parameters = 4 * (12 * 128 * 128 + 13 * 128) + 2 * 128 + (256 + 257) * 128;
    assert_eq!(bytes, 4.0 * f64::from(parameters));
    assert!(report["profile"]["backward"].as_f64().unwrap() > 0.0, "{report}");
}
