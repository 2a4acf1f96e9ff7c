//! Gray and color images of Netpbm, with the rounding of Pillow's `PpmImagePlugin`.

use image::{DynamicImage, GrayImage, ImageBuffer, RgbImage};

/// Most pixels of an image: those of Pillow, which takes larger ones for an attack.
const MOST_PIXELS: u64 = 178_956_970;

/// Decodes the kinds P2, P3, P5 and P6; `None` for other files. A gray image of more than 8 bits has 16, and
/// a colored one 8.
pub(crate) fn decode(bytes: &[u8]) -> Option<Result<DynamicImage, String>> {
    let (channels, is_plain) = match bytes.get(..2)? {
        b"P2" => (1, true),
        b"P3" => (3, true),
        b"P5" => (1, false),
        b"P6" => (3, false),
        _ => return None,
    };
    Some(samples(&bytes[2..], channels, is_plain))
}

fn samples(bytes: &[u8], channels: usize, is_plain: bool) -> Result<DynamicImage, String> {
    let mut text = Tokens { bytes };
    let [width, height, most] = [text.number()?, text.number()?, text.number()?];
    check_size(width, height)?;
    if !(1..1 << 16).contains(&most) {
        return Err(format!("is not a whole image: its largest value is {most}"));
    }
    let count = (width * height) as usize * channels;
    let mut values = Vec::new();
    if is_plain {
        for _ in 0..count {
            values.push(text.number()?);
        }
    } else {
        let width = if most < 256 { 1 } else { 2 };
        let all = text.bytes.chunks_exact(width).take(count);
        values.extend(all.map(|sample| sample.iter().fold(0, |value, byte| value << 8 | u32::from(*byte))));
    }
    if values.len() < count {
        return Err("is not a whole image: it is cut off".into());
    }
    let scaled = |largest: u32| {
        let scale = move |value: &u32| {
            let value = f64::from(*value) / f64::from(most) * f64::from(largest);
            (value.round_ties_even() as u32).min(largest)
        };
        values.iter().map(scale)
    };
    let bytes = || scaled(255).map(|value| value as u8).collect();
    let image = match (channels, most) {
        (3, _) => RgbImage::from_raw(width, height, bytes()).map(DynamicImage::from),
        (_, ..256) => GrayImage::from_raw(width, height, bytes()).map(DynamicImage::from),
        _ => {
            let words = scaled(65_535).map(|value| value as u16).collect();
            ImageBuffer::from_raw(width, height, words).map(DynamicImage::ImageLuma16)
        }
    };
    image.ok_or_else(|| "has no pixels".into())
}

/// Refuses images of too many pixels.
pub(crate) fn check_size(width: u32, height: u32) -> Result<(), String> {
    match u64::from(width) * u64::from(height) > MOST_PIXELS {
        true => Err(format!("has {width}x{height} pixels, more than {MOST_PIXELS}; make it smaller")),
        false => Ok(()),
    }
}

/// Numbers between white space and comments.
struct Tokens<'a> {
    bytes: &'a [u8],
}

impl Tokens<'_> {
    /// Reads a number and the white space behind it.
    fn number(&mut self) -> Result<u32, String> {
        let mut digits = String::new();
        while let Some((byte, rest)) = self.bytes.split_first() {
            self.bytes = rest;
            match byte {
                b'#' => {
                    let line = rest.iter().position(|byte| b"\r\n".contains(byte));
                    self.bytes = &rest[line.map_or(rest.len(), |end| end + 1)..];
                }
                byte if byte.is_ascii_whitespace() || *byte == 0x0b => match digits.is_empty() {
                    true => {}
                    false => break,
                },
                byte => digits.push(char::from(*byte)),
            }
            if digits.len() > 10 {
                break;
            }
        }
        match digits.is_empty() {
            true => Err("is not a whole image: it is cut off".into()),
            false => digits.parse().map_err(|_| format!("is not a whole image: `{digits}` is not a number")),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::decode::decode;

    /// Values of Pillow 13.0.0's `convert`.
    #[test]
    fn values_are_scaled_as_pillow_does() {
        let words = |words: &[u16]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
        let gray = |head: &str, body: &[u8]| decode(&[head.as_bytes(), body].concat(), 1).unwrap().bytes;
        let color = |head: &str, body: &[u8]| decode(&[head.as_bytes(), body].concat(), 3).unwrap().bytes;
        assert_eq!(gray("P5\n5 1\n6\n", &[0, 1, 3, 5, 6]), [0, 42, 128, 212, 255]);
        assert_eq!(gray("P5 # c\n4 1\n100\n", &[0, 50, 99, 100]), [0, 128, 252, 255]);
        assert_eq!(gray("P5\n2 1\n6\n", &[7, 6]), [255, 255]);
        assert_eq!(gray("P5\n5 1\n1023\n", &words(&[0, 1, 2, 3, 4])), [0, 64, 128, 192, 255]);
        assert_eq!(gray("P5\n2 1\n255\n", &[7, 200]), [7, 200]);
        assert_eq!(color("P6\n2 1\n10\n", &[0, 1, 5, 7, 9, 10]), [0, 26, 128, 178, 230, 255]);
        assert_eq!(color("P6\n1 1\n65535\n", &words(&[0x80ff, 0x1234, 65_535])), [128, 18, 255]);
        let ten = words(&[0, 2, 512, 511, 1000, 1023]);
        assert_eq!(color("P6\n2 1\n1023\n", &ten), [0, 0, 128, 127, 249, 255]);
        assert_eq!(gray("P2\n3 1\n6\n0 1\n3", &[]), [0, 42, 128]);
        assert_eq!(color("P3\n1 1\n6\n0 1 3", &[]), [0, 42, 128]);
        assert_eq!(gray("P2\n3 1\n65535\n0 255 300", &[]), [0, 255, 255]);
    }

    #[test]
    fn what_is_no_whole_image_says_why() {
        let told = |file: &str| decode(file.as_bytes(), 3).unwrap_err();
        for file in ["P5\n2 1\n6\n\u{7}", "P6\n2 1", "P2\n2 1\n6\n1"] {
            assert_eq!(told(file), "is not a whole image: it is cut off", "{file}");
        }
        assert_eq!(told("P2\n2 1\n6\n1 x"), "is not a whole image: `x` is not a number");
        assert_eq!(told("P5\n2 1\n70000\n1111"), "is not a whole image: its largest value is 70000");
        assert_eq!(
            told("P5\n65536 65536\n255\n1"),
            "has 65536x65536 pixels, more than 178956970; make it smaller"
        );
        assert_eq!(told("P5\n0 0\n255\n"), "has no pixels");
    }
}
