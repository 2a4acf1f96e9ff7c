//! Formats numbers with units, in as many columns for most sizes.

/// Formats as `12.3 ms`.
pub(crate) fn seconds(seconds: f64) -> String {
    match seconds {
        _ if seconds >= 1.0 => format!("{seconds:.2} s"),
        _ if seconds >= 1e-3 => format!("{:.1} ms", seconds * 1e3),
        _ => format!("{:.0} µs", seconds * 1e6),
    }
}

/// Formats as `4.2 MB`.
pub(crate) fn bytes(bytes: usize) -> String {
    match bytes as f64 {
        bytes if bytes >= 1e6 => format!("{:.1} MB", bytes / 1e6),
        bytes if bytes >= 1e3 => format!("{:.1} kB", bytes / 1e3),
        bytes => format!("{bytes} B"),
    }
}

/// Formats with about four digits, for any size.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 1e6 || (size < 1e-3 && size > 0.0) => format!("{value:.2e}"),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_suit_the_size() {
        assert_eq!([12.345, 0.0123, 4.2e-5].map(seconds), ["12.35 s", "12.3 ms", "42 µs"]);
        assert_eq!([4_200_000, 1500, 12].map(bytes), ["4.2 MB", "1.5 kB", "12 B"]);
        assert_eq!(
            [0.0, 0.25, 7.0, 1234.5, 2e7, 1e-5].map(number),
            ["0.0000", "0.2500", "7.00", "1234", "2.00e7", "1.00e-5"]
        );
    }
}
