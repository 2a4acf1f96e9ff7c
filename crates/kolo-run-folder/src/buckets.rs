//! `buckets.csv`: durations of the reduction of each bucket.

use std::path::Path;

use crate::csv;
use crate::error::Error;

/// Name of the file.
pub const BUCKETS: &str = "buckets.csv";

/// Its columns, in the order of writing.
const COLUMNS: &str = "bucket,bytes,wire_bytes,p50_us,p95_us,p99_us,ready_us,needed_us,exposed_us";

/// Statistics of a bucket. Its times run from its first message until the reduced values are back.
#[derive(Clone, Debug, PartialEq)]
pub struct BucketRow {
    /// Number of the bucket, in the order in which gradients become ready, from 0.
    pub bucket: usize,
    /// Bytes of gradient.
    pub bytes: f64,
    /// Bytes that a shard's part of the bucket takes on the wire.
    pub wire_bytes: f64,
    /// Median, in seconds.
    pub p50: f64,
    /// 95th percentile, in seconds.
    pub p95: f64,
    /// 99th percentile, in seconds.
    pub p99: f64,
    /// Median time at which its gradient was ready, in seconds from the start of a step's last backward
    /// pass; `None` if unknown.
    pub ready: Option<f64>,
    /// Median time at which the next step needed its values, in seconds of computing from the step before;
    /// `None` if unknown.
    pub needed: Option<f64>,
    /// Median time that the training thread waited for it, in seconds; `None` if unknown.
    pub exposed: Option<f64>,
}

impl BucketRow {
    /// Returns the whole file for these buckets.
    pub fn csv<'a>(rows: impl IntoIterator<Item = &'a BucketRow>) -> String {
        let mut text = format!("{COLUMNS}\n");
        for row in rows {
            let [p50, p95, p99] = [row.p50, row.p95, row.p99].map(|seconds| seconds * 1e6);
            let [ready, needed, exposed] = [row.ready, row.needed, row.exposed]
                .map(|seconds| seconds.map_or_else(String::new, |seconds| format!("{:.1}", seconds * 1e6)));
            let BucketRow { bucket, bytes, wire_bytes, .. } = row;
            text += &format!(
                "{bucket},{bytes},{wire_bytes},{p50:.1},{p95:.1},{p99:.1},{ready},{needed},{exposed}\n"
            );
        }
        text
    }
}

/// Reads the buckets of a run, and returns a remark on an incomplete file.
pub(crate) fn read(folder: &Path) -> Result<(Vec<BucketRow>, Option<String>), Error> {
    let path = folder.join(BUCKETS);
    let Some((table, is_half)) = csv::read(&path)? else {
        let remark = format!(
            "There is no {BUCKETS}: why communication takes its time cannot be told (it is written at the \
             end of an epoch)."
        );
        return Ok((Vec::new(), Some(remark)));
    };
    if is_half {
        return Err(Error::content(&path, "its last line has no end"));
    }
    // The first versions did not record bytes on the wire.
    let wire_bytes = if table.names.iter().any(|name| name == "wire_bytes") { "wire_bytes" } else { "bytes" };
    let names = ["bucket", "bytes", wire_bytes, "p50_us", "p95_us", "p99_us"];
    let mut places = [0; 6];
    for (place, name) in places.iter_mut().zip(names) {
        let found = table.names.iter().position(|known| known == name);
        *place = found.ok_or_else(|| Error::line(&path, 1, format!("there is no column `{name}`")))?;
    }
    let [ready, needed, exposed] =
        ["ready_us", "needed_us", "exposed_us"].map(|name| table.names.iter().position(|n| n == name));
    let rows = table.rows.iter().enumerate().map(|(index, row)| {
        let cells = places.map(|place| row[place].filter(|number| number.is_finite() && *number >= 0.0));
        let [Some(bucket), Some(bytes), Some(wire_bytes), Some(p50), Some(p95), Some(p99)] = cells else {
            return Err(Error::line(&path, index + 2, "a field is empty, or is not a number of at least 0"));
        };
        let [p50, p95, p99] = [p50, p95, p99].map(|micros| micros * 1e-6);
        let seconds = |place: Option<usize>| place.and_then(|place| row[place]).map(|micros| micros * 1e-6);
        let [ready, needed] = [ready, needed].map(|place| seconds(place).filter(|time| *time > 0.0));
        let (bucket, exposed) = (bucket as usize, seconds(exposed));
        Ok(BucketRow { bucket, bytes, wire_bytes, p50, p95, p99, ready, needed, exposed })
    });
    let rows: Vec<BucketRow> = rows.collect::<Result<_, _>>()?;
    let remark = rows.is_empty().then(|| format!("{BUCKETS} has no rows: no bucket was reduced yet."));
    Ok((rows, remark))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<(Vec<BucketRow>, Option<String>), Error> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(BUCKETS), text).unwrap();
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
        assert_eq!((rows[0].wire_bytes, rows[0].ready, rows[0].exposed), (4096.0, None, None));
    }

    #[test]
    fn written_rows_are_read_back() {
        let row = |bucket, ready, exposed| BucketRow {
            bucket,
            bytes: 4096.0,
            wire_bytes: 512.0,
            p50: 0.0015,
            p95: 0.002,
            p99: 0.0030005,
            ready,
            needed: Some(0.125),
            exposed,
        };
        let (rows, _) =
            read_text(&BucketRow::csv(&[row(0, Some(0.25), None), row(1, None, Some(0.5))])).unwrap();
        assert!((rows[0].p99 - 0.0030005).abs() < 1e-12 && (rows[0].ready.unwrap() - 0.25).abs() < 1e-12);
        assert_eq!((rows.len(), rows[1].bucket, rows[1].bytes, rows[1].ready), (2, 1, 4096.0, None));
        assert!(rows[0].exposed.is_none() && (rows[1].exposed.unwrap() - 0.5).abs() < 1e-12);
        assert!((rows[1].needed.unwrap() - 0.125).abs() < 1e-12);
    }

    #[test]
    fn missing_columns_are_reported() {
        assert!(read(tempfile::tempdir().unwrap().path()).unwrap().1.unwrap().contains("no buckets.csv"));
        let error = read_text("bucket,bytes\n0,1\n").unwrap_err().to_string();
        assert!(error.contains("buckets.csv line 1: there is no column `p50_us`"), "{error}");
        let error = read_text("bucket,bytes,p50_us,p95_us,p99_us\n0,1,,2,3\n").unwrap_err().to_string();
        assert!(error.contains("line 2: a field is empty"), "{error}");
    }
}
