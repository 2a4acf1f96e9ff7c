//! `buckets.csv`: how long the reduction of each bucket took.

use std::path::Path;

use super::csv;
use crate::error::Error;

const FILE: &str = "buckets.csv";

/// What is known of a bucket. Times are from its first message until it was back.
#[derive(Clone, Debug, PartialEq)]
pub struct BucketRow {
    /// Number of the bucket, in the order in which gradients become ready, from 0.
    pub bucket: usize,
    /// Bytes of gradient.
    pub bytes: f64,
    /// Bytes in which a shard's part of it travels.
    pub wire_bytes: f64,
    /// Median, in seconds.
    pub p50: f64,
    /// Nineteen reductions of twenty were not slower, in seconds.
    pub p95: f64,
    /// Ninety-nine of a hundred were not slower, in seconds.
    pub p99: f64,
    /// Median of when its gradient was there, in seconds from the start of the last backward pass of a step;
    /// nothing where it is not known.
    pub ready: Option<f64>,
    /// Median of when the next step needed its values, in seconds of computing from the end of the one before;
    /// nothing where it is not known.
    pub needed: Option<f64>,
}

/// The buckets of a run, and what has to be said of the file.
pub(super) fn read(folder: &Path) -> Result<(Vec<BucketRow>, Option<String>), Error> {
    let path = folder.join(FILE);
    let Some((table, is_half)) = csv::read(&path)? else {
        let remark = format!(
            "There is no {FILE}: why communication takes its time cannot be told (it is written at the end of an \
             epoch)."
        );
        return Ok((Vec::new(), Some(remark)));
    };
    if is_half {
        return Err(Error::content(&path, "its last line has no end"));
    }
    // The first versions did not tell bytes on the wire apart.
    let wire_bytes = if table.names.iter().any(|name| name == "wire_bytes") { "wire_bytes" } else { "bytes" };
    let names = ["bucket", "bytes", wire_bytes, "p50_us", "p95_us", "p99_us"];
    let mut places = [0; 6];
    for (place, name) in places.iter_mut().zip(names) {
        let found = table.names.iter().position(|known| known == name);
        *place = found.ok_or_else(|| Error::line(&path, 1, format!("there is no column `{name}`")))?;
    }
    let time = |column: &str| table.names.iter().position(|name| name == column);
    let (ready, needed) = (time("ready_us"), time("needed_us"));
    let rows = table.rows.iter().enumerate().map(|(index, row)| {
        let cells = places.map(|place| row[place].filter(|number| number.is_finite() && *number >= 0.0));
        let [Some(bucket), Some(bytes), Some(wire_bytes), Some(p50), Some(p95), Some(p99)] = cells else {
            return Err(Error::line(&path, index + 2, "a field is empty, or is no number of 0 or more"));
        };
        let [p50, p95, p99] = [p50, p95, p99].map(|micros| micros * 1e-6);
        let seconds = |place: Option<usize>| {
            place.and_then(|place| row[place]).filter(|micros| *micros > 0.0).map(|micros| micros * 1e-6)
        };
        let (ready, needed) = (seconds(ready), seconds(needed));
        Ok(BucketRow { bucket: bucket as usize, bytes, wire_bytes, p50, p95, p99, ready, needed })
    });
    let rows: Vec<BucketRow> = rows.collect::<Result<_, _>>()?;
    let remark = rows.is_empty().then(|| format!("{FILE} has no rows: no bucket was reduced yet."));
    Ok((rows, remark))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<(Vec<BucketRow>, Option<String>), Error> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE), text).unwrap();
        read(folder.path())
    }

    #[test]
    fn times_are_seconds() {
        let text = "bucket,bytes,wire_bytes,p50_us,p95_us,p99_us,ready_us,needed_us\n0,4096,512,1500.0,2000.0,3000.5,250,750\n";
        let (rows, remark) = read_text(text).unwrap();
        let row = &rows[0];
        assert_eq!((row.bytes, row.wire_bytes, remark), (4096.0, 512.0, None));
        assert!((row.p50 - 1.5e-3).abs() < 1e-12 && (row.p99 - 3.0005e-3).abs() < 1e-12);
        assert!((row.ready.unwrap() - 0.25e-3).abs() < 1e-12);
        assert!((row.needed.unwrap() - 0.75e-3).abs() < 1e-12);
        let (rows, _) = read_text("bucket,bytes,p50_us,p95_us,p99_us\n0,4096,1,2,3\n").unwrap();
        assert_eq!((rows[0].wire_bytes, rows[0].ready), (4096.0, None));
    }

    #[test]
    fn what_is_missing_is_told() {
        assert!(read(tempfile::tempdir().unwrap().path()).unwrap().1.unwrap().contains("no buckets.csv"));
        let error = read_text("bucket,bytes\n0,1\n").unwrap_err().to_string();
        assert!(error.contains("buckets.csv line 1: there is no column `p50_us`"), "{error}");
        let error = read_text("bucket,bytes,p50_us,p95_us,p99_us\n0,1,,2,3\n").unwrap_err().to_string();
        assert!(error.contains("line 2: a field is empty"), "{error}");
    }
}
