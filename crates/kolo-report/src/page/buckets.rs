//! Latency of buckets, and its relation to their bytes.

use kolo_run_folder::{BucketRow, Run};

use super::section::{Ids, Section, gallery, paragraph, titled};
use crate::analysis::BucketCosts;
use crate::figures::{Axis, Figure, Labels, Table, dots, whisker};
use crate::html::Html;
use crate::units::{bytes, count, plural, rate, seconds};

pub(super) fn section(runs: &[&Run], ids: &mut Ids) -> Section {
    let mut body = Html::default();
    let known: Vec<&&Run> = runs.iter().filter(|run| !run.buckets.is_empty()).collect();
    if known.is_empty() {
        body.push(paragraph("No bucket is known: there is no buckets.csv with rows."));
    } else {
        body.push(paragraph(
            "A dot is the median of a bucket's reduction, the bars above it are its 95th and 99th \
             percentiles. Where dots lie on a rising line the wire takes its time for the bytes; where they \
             lie level, each reduction costs as much by itself.",
        ));
    }
    let figures = known.iter().map(|run| figure(run, runs.len()).html(&ids.next()));
    body.push(gallery(figures.collect::<Vec<_>>()));
    Section { id: "buckets", title: "Buckets", body }
}

fn figure(run: &Run, runs: usize) -> Figure {
    let title = titled(&run.name, runs, "Latency of buckets by their bytes");
    let x = Axis::logarithmic(
        "bytes on the wire (logarithmic)",
        run.buckets.iter().map(|bucket| bucket.wire_bytes),
        Labels::Bytes,
    );
    let times = run.buckets.iter().flat_map(|bucket| [bucket.p50, bucket.p95, bucket.p99]);
    let y = Axis::logarithmic("latency (logarithmic)", times, Labels::Seconds);
    // Logarithmic axes have no position for 0.
    let shown = || run.buckets.iter().filter(|bucket| bucket.p50 > 0.0 && bucket.wire_bytes > 0.0);
    let mut marks: Html = shown()
        .map(|bucket| whisker(&x, &y, bucket.wire_bytes, [bucket.p50, bucket.p95, bucket.p99], 0))
        .collect();
    let points: Vec<(f64, f64, String)> =
        shown().map(|bucket| (bucket.wire_bytes, bucket.p50, label(bucket))).collect();
    marks.push(dots(&x, &y, &points, 0));
    let note = BucketCosts::of(run).map(|costs| note(run, &costs));
    let about = format!(
        "Median, 95th and 99th percentile of {}. {}",
        plural(run.buckets.len(), "bucket"),
        note.as_deref().unwrap_or("")
    );
    Figure {
        title: title.clone(),
        about,
        x,
        y,
        marks,
        legend: Vec::new(),
        note,
        table: table(&title, &run.buckets),
    }
}

fn label(bucket: &BucketRow) -> String {
    format!("bucket {}, {}: {}", bucket.bucket, bytes(bucket.wire_bytes), seconds(bucket.p50))
}

fn note(run: &Run, costs: &BucketCosts) -> String {
    let mut text = format!(
        "{} of {} take {} a step",
        plural(run.buckets.len(), "bucket"),
        bytes(costs.bytes),
        seconds(costs.seconds)
    );
    let per_byte = costs.per_byte.filter(|per_byte| *per_byte > 0.0).map(|per_byte| rate(1.0 / per_byte));
    let fixed = costs.fixed.filter(|fixed| *fixed > 0.0).map(seconds);
    text += &match (fixed, per_byte) {
        (Some(fixed), Some(rate)) => format!(": about {fixed} each, and {rate} of gradients besides"),
        (Some(fixed), None) => format!(": about {fixed} each, whatever its bytes"),
        (None, Some(rate)) => format!(": {rate} of gradients"),
        (None, None) => String::new(),
    };
    text + "."
}

fn table(title: &str, buckets: &[BucketRow]) -> Table {
    let mut table = Table::new(title, ["bucket", "gradients", "on the wire", "p50", "p95", "p99"]);
    for bucket in buckets {
        table.add([
            count(bucket.bucket),
            bytes(bucket.bytes),
            bytes(bucket.wire_bytes),
            seconds(bucket.p50),
            seconds(bucket.p95),
            seconds(bucket.p99),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn a_bucket_has_a_dot_and_a_row() {
        let run = example::with_buckets(&[(1e6, 0.0101), (4e6, 0.0401), (4e6, 0.0), (0.0, 1e-4)]);
        let text = section(&[&run], &mut Ids::default()).html().into_string();
        assert_eq!((text.matches("<circle").count(), text.matches("<tr>").count()), (2, 5), "{text}");
        assert!(text.contains("bucket 1, 4 MB: 40.1 ms") && !text.contains("NaN"), "{text}");
        let none = Run { buckets: Vec::new(), ..run };
        assert!(section(&[&none], &mut Ids::default()).html().into_string().contains("No bucket is known"));
    }
}
