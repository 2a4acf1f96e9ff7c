//! Numbers on the command line.

/// Parses a number above 0, as 7e9.
pub(super) fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "give a finite number above 0, as 7e9".into())
}

/// Parses a number of parameters: at least 1, and few enough for a table of bytes.
pub(super) fn model_size(text: &str) -> Result<f64, String> {
    let number = positive(text).ok().filter(|number| (1.0..=1e15).contains(number));
    number.ok_or_else(|| "give a number from 1 to 1e15, as 7e9".into())
}

/// Parses a share: above 0 and at most 1.
pub(super) fn share(text: &str) -> Result<f64, String> {
    positive(text).ok().filter(|share| *share <= 1.0).ok_or_else(|| "give a share above 0 and up to 1".into())
}
