//! Numbers as text: three significant digits and a unit.

use std::time::Duration;

pub use kolo_schedule::words::counted;

/// Formats a number with three significant digits.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "–".into();
    }
    let size = value.abs();
    match size {
        0.0 => "0".into(),
        _ if !(1e-4..1e15).contains(&size) => trim_exponent(format!("{value:.2e}")),
        _ if size >= 100.0 => grouped(value.round()),
        _ => {
            let decimals = (2 - size.log10().floor() as i32).clamp(0, 6) as usize;
            trimmed(format!("{value:.decimals$}"))
        }
    }
}

/// Removes trailing zeros before the exponent: `1.2e-7`.
fn trim_exponent(text: String) -> String {
    match text.split_once('e') {
        Some((digits, exponent)) => format!("{}e{exponent}", trimmed(digits.into())),
        None => text,
    }
}

/// Removes trailing zeros of the fraction.
fn trimmed(text: String) -> String {
    if !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').into()
}

/// Formats a whole number with thousands separated by commas.
pub fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 && digits != "0" { format!("-{text}") } else { text }
}

/// Formats a count.
pub fn count(value: usize) -> String {
    grouped(value as f64)
}

/// Formats a count with its noun: `1 step`, `2,000 steps`.
pub fn plural(value: usize, noun: &str) -> String {
    counted(count(value), noun)
}

/// Formats a duration.
pub fn seconds(value: f64) -> String {
    let size = value.abs();
    match size {
        0.0 => "0 s".into(),
        _ if size < 1e-3 => format!("{} µs", number(value * 1e6)),
        _ if size < 1.0 => format!("{} ms", number(value * 1e3)),
        _ if size < 120.0 => format!("{} s", number(value)),
        _ if size < 7200.0 => format!("{} min", number(value / 60.0)),
        _ if size < 172_800.0 => format!("{} h", number(value / 3600.0)),
        _ => format!("{} days", number(value / 86400.0)),
    }
}

/// Formats a duration as `1:02:03`.
pub fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds / 3600 {
        0 => format!("{}:{:02}", seconds / 60, seconds % 60),
        hours => format!("{hours}:{:02}:{:02}", seconds / 60 % 60, seconds % 60),
    }
}

/// Formats a size in bytes.
pub fn bytes(value: f64) -> String {
    let units = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    match units.iter().find(|(size, _)| value.abs() >= *size) {
        Some((size, unit)) => format!("{} {unit}", number(value / size)),
        None => format!("{} B", number(value)),
    }
}

/// Formats a share of a whole as a percentage.
pub fn percent(share: f64) -> String {
    format!("{} %", trimmed(format!("{:.1}", share * 100.0)))
}

/// Formats a data rate, given in bytes per second, in bits per second.
pub fn rate(bytes_per_second: f64) -> String {
    let bits = bytes_per_second * 8.0;
    let units = [(1e9, "Gbit/s"), (1e6, "Mbit/s")];
    match units.iter().find(|(size, _)| bits >= *size) {
        Some((size, unit)) => format!("{} {unit}", number(bits / size)),
        None => format!("{} kbit/s", number(bits / 1e3)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_count() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (1.5, "1.5"),
            (0.012_345, "0.0123"),
            (99.96, "100"),
            (1_234_567.0, "1,234,567"),
            (-1234.0, "-1,234"),
            (5e-5, "5e-5"),
            (f64::NAN, "–"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn units_follow_the_size() {
        assert_eq!(
            [2.5e-5, 0.0123, 1.5, 600.0, 90_000.0].map(seconds),
            ["25 µs", "12.3 ms", "1.5 s", "10 min", "25 h"]
        );
        let clocks = [59, 3600, 86_399].map(|seconds| clock(Duration::from_secs(seconds)));
        assert_eq!(clocks, ["0:59", "1:00:00", "23:59:59"]);
        assert_eq!([12.0, 4096.0, 46.8e6].map(bytes), ["12 B", "4.1 kB", "46.8 MB"]);
        assert_eq!([1.25e8, 1.25e6, 125.0].map(rate), ["1 Gbit/s", "10 Mbit/s", "1 kbit/s"]);
        assert_eq!([0.1234, 1.0].map(percent), ["12.3 %", "100 %"]);
        assert_eq!([plural(1, "step"), plural(2000, "step")], ["1 step", "2,000 steps"]);
    }
}
