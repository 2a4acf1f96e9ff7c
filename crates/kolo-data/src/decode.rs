//! Files of images, decoded as torchvision's `ImageFolder` does: Pillow's `convert("RGB")`, or
//! `convert("L")`.
//!
//! Transparency is dropped, not blended. Samples of 16 bits keep their upper byte, but gray ones without
//! transparency are cut off at 255. An EXIF orientation is not applied. Of several frames the first counts.
//! Decoders of JPEG round in ways of their own: a pixel may differ from libjpeg's by a few steps.

use std::io::Cursor;
use std::path::Path;

use image::{DynamicImage, ImageBuffer, ImageDecoder, ImageError, ImageFormat, ImageReader, Limits};

use crate::pnm::{self, check_size};
use crate::resample::Picture;

/// Endings of the files that are images, in small letters: torchvision's, and `gif`.
pub(crate) const ENDINGS: [&str; 10] =
    ["jpg", "jpeg", "png", "ppm", "bmp", "pgm", "tif", "tiff", "webp", "gif"];

/// Most bytes that a decoder may allocate.
const MOST_BYTES: u64 = 2 << 30;

/// Reads the image in a file with 1 or 3 channels. The error says what is wrong with the file.
pub(crate) fn read(path: &Path, channels: usize) -> Result<Picture, String> {
    let bytes = kolo_durable::read(path).map_err(|error| format!("cannot be read: {error}"))?;
    decode(&bytes, channels)
}

/// Decodes the bytes of a file, whose kind is recognized by its content, not by its name.
pub(crate) fn decode(bytes: &[u8], channels: usize) -> Result<Picture, String> {
    let reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format().map_err(|e| e.to_string())?;
    if reader.format().is_none() {
        return Err("is not an image of a known format (PNG, JPEG, BMP, GIF, WebP, TIFF, PPM)".into());
    }
    if reader.format() == Some(ImageFormat::Jpeg) && !has_end(bytes) {
        // The decoder would fill up the rest with gray.
        return Err("is not a whole image: it is cut off".into());
    }
    let image = match pnm::decode(bytes) {
        Some(image) => image?,
        None => of_reader(reader)?,
    };
    let image = match image {
        // Transparency of a single value, which Pillow's gray images of 16 bits ignore.
        DynamicImage::ImageLumaA16(image) if is_gray_16(bytes) => {
            let (width, height) = image.dimensions();
            let words = image.into_raw().into_iter().step_by(2).collect();
            ImageBuffer::from_raw(width, height, words)
                .map_or_else(Default::default, DynamicImage::ImageLuma16)
        }
        other => other,
    };
    let (width, height) = (image.width() as usize, image.height() as usize);
    let bytes = match channels {
        1 => gray(image)?,
        _ => color(image)?,
    };
    match bytes.is_empty() {
        true => Err("has no pixels".into()),
        false => Ok(Picture { channels, width, height, bytes }),
    }
}

fn of_reader(reader: ImageReader<Cursor<&[u8]>>) -> Result<DynamicImage, String> {
    let damaged = |error: ImageError| match error {
        ImageError::Unsupported(error) => {
            format!("is an image that Kolo does not read: {error}; convert it to PNG")
        }
        error => format!("is not a whole image: {error}"),
    };
    let mut decoder = reader.into_decoder().map_err(damaged)?;
    let (width, height) = decoder.dimensions();
    check_size(width, height)?;
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(MOST_BYTES);
    decoder.set_limits(limits).map_err(damaged)?;
    DynamicImage::from_decoder(decoder).map_err(damaged)
}

/// True for a PNG file of one channel of 16 bits, by its first chunk.
fn is_gray_16(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x89PNG") && bytes.get(24..26) == Some(&[16, 0])
}

/// True if a JPEG file reaches its end marker (ITU-T T.81, annex B).
fn has_end(jpeg: &[u8]) -> bool {
    let mut at = 2;
    while let Some(pair) = jpeg.get(at..at + 2) {
        at += match pair {
            [0xff, 0xd9] => return true,
            // Fill bytes, stuffed bytes of a scan, and markers without a length.
            [0xff, 0xff] => 1,
            [0xff, 0x00 | 0x01 | 0xd0..=0xd8] => 2,
            // A segment with its length; that of a scan is its header's.
            [0xff, _] => match jpeg.get(at + 2..at + 4) {
                Some(&[high, low]) => 2 + usize::from(u16::from_be_bytes([high, low])),
                _ => return false,
            },
            // Bytes of a scan.
            _ => 1,
        };
    }
    false
}

fn upper(sample: u16) -> u8 {
    (sample >> 8) as u8
}

/// Pixels of three bytes.
fn color(image: DynamicImage) -> Result<Vec<u8>, String> {
    Ok(match image {
        DynamicImage::ImageRgb8(image) => image.into_raw(),
        DynamicImage::ImageRgba8(image) => {
            image.as_raw().as_chunks::<4>().0.iter().flat_map(|[r, g, b, _]| [*r, *g, *b]).collect()
        }
        DynamicImage::ImageRgb16(image) => image.into_raw().into_iter().map(upper).collect(),
        DynamicImage::ImageRgba16(image) => {
            let pixels = image.as_raw().as_chunks::<4>().0.iter();
            pixels.flat_map(|[r, g, b, _]| [*r, *g, *b].map(upper)).collect()
        }
        other => gray(other)?.into_iter().flat_map(|value| [value; 3]).collect(),
    })
}

/// Pixels of one byte; those of color are weighted as ITU-R BT.601 says.
fn gray(image: DynamicImage) -> Result<Vec<u8>, String> {
    Ok(match image {
        DynamicImage::ImageLuma8(image) => image.into_raw(),
        DynamicImage::ImageLumaA8(image) => image.into_raw().into_iter().step_by(2).collect(),
        DynamicImage::ImageLuma16(image) => {
            image.into_raw().into_iter().map(|sample| sample.min(255) as u8).collect()
        }
        DynamicImage::ImageLumaA16(image) => image.into_raw().into_iter().step_by(2).map(upper).collect(),
        image @ (DynamicImage::ImageRgb8(_)
        | DynamicImage::ImageRgba8(_)
        | DynamicImage::ImageRgb16(_)
        | DynamicImage::ImageRgba16(_)) => {
            let luma = |[r, g, b]: &[u8; 3]| {
                let [r, g, b] = [r, g, b].map(|value| u32::from(*value));
                ((r * 19_595 + g * 38_470 + b * 7_471 + 0x8000) >> 16) as u8
            };
            color(image)?.as_chunks::<3>().0.iter().map(luma).collect()
        }
        other => return Err(format!("has pixels of type {:?}; convert it to 8 bits", other.color())),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use image::{ExtendedColorType, ImageEncoder};

    use super::*;

    /// Encodes one row of pixels as PNG.
    fn png(samples: &[u8], width: u32, color: ExtendedColorType) -> Vec<u8> {
        let mut file = Vec::new();
        image::codecs::png::PngEncoder::new(&mut file).write_image(samples, width, 1, color).unwrap();
        file
    }

    fn words(samples: &[u16]) -> Vec<u8> {
        samples.iter().flat_map(|sample| sample.to_ne_bytes()).collect()
    }

    /// Values of Pillow 13.0.0's `convert`.
    #[test]
    fn all_kinds_of_pixels_are_converted_as_pillow_does() {
        use ExtendedColorType::{L8, L16, La16, Rgb8, Rgb16, Rgba8, Rgba16};
        let both = |file: Vec<u8>| [3, 1].map(|channels| decode(&file, channels).unwrap().bytes);
        assert_eq!(both(png(&[7, 200], 2, L8)), [vec![7, 7, 7, 200, 200, 200], vec![7, 200]]);
        let sixteen = png(&words(&[0, 127, 255, 256, 65_535]), 5, L16);
        assert_eq!(both(sixteen.clone())[1], [0, 127, 255, 255, 255]);
        // A chunk that makes the value 255 transparent follows the header, which has 33 bytes.
        let chunk = [b"tRNS".as_slice(), &[0, 255]].concat();
        let sum = crc(&chunk).to_be_bytes();
        let keyed = [&sixteen[..33], &[0, 0, 0, 2], &chunk, &sum, &sixteen[33..]].concat();
        assert_eq!(both(keyed)[1], [0, 127, 255, 255, 255]);
        let clear = png(&words(&[0x1234, 0xffff, 0x80ff, 0]), 2, La16);
        assert_eq!(both(clear)[0], [18, 18, 18, 128, 128, 128]);
        assert_eq!(both(png(&[10, 20, 30, 0], 1, Rgba8)), [vec![10, 20, 30], vec![18]]);
        let sixteen = png(&words(&[0x1234, 0x12ff, 255, 65_535, 256, 128]), 2, Rgb16);
        assert_eq!(both(sixteen), [vec![18, 18, 0, 255, 1, 0], vec![16, 77]]);
        let sixteen = png(&words(&[0x1234, 0xffff, 0x80ff, 0]), 1, Rgba16);
        assert_eq!(both(sixteen)[0], [18, 255, 128]);
        let gray = both(png(&[0, 13, 0, 37, 104, 7, 74, 195, 28], 3, Rgb8))[1].clone();
        assert_eq!(gray, [8, 73, 140]);
    }

    #[test]
    fn every_format_is_recognized_by_its_content() {
        let picture = image::RgbImage::from_fn(16, 8, |x, y| image::Rgb([x as u8 * 16, y as u8 * 32, 128]));
        for (format, is_exact) in [
            (ImageFormat::Png, true),
            (ImageFormat::Bmp, true),
            (ImageFormat::WebP, true),
            (ImageFormat::Tiff, true),
            (ImageFormat::Pnm, true),
            (ImageFormat::Gif, false),
            (ImageFormat::Jpeg, false),
        ] {
            let mut file = Cursor::new(Vec::new());
            picture.write_to(&mut file, format).unwrap();
            let read = decode(file.get_ref(), 3).unwrap();
            assert_eq!((read.width, read.height), (16, 8), "{format:?}");
            let far = read.bytes.iter().zip(picture.as_raw()).map(|(a, b)| a.abs_diff(*b)).max();
            assert!(if is_exact { far == Some(0) } else { far < Some(40) }, "{format:?}: {far:?}");
        }
    }

    #[test]
    fn what_is_no_image_says_why() {
        let whole = png(&[1; 64 * 3], 64, ExtendedColorType::Rgb8);
        let told = |bytes: &[u8]| decode(bytes, 3).unwrap_err();
        assert_eq!(told(b""), "is not an image of a known format (PNG, JPEG, BMP, GIF, WebP, TIFF, PPM)");
        assert!(told(b"<html>not found</html>").starts_with("is not an image of a known format"));
        assert!(told(&whole[..whole.len() - 20]).starts_with("is not a whole image: "), "{}", told(&whole));
        let mut jpeg = Vec::new();
        let noise: Vec<u8> =
            (0..64 * 64 * 3_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        image::codecs::jpeg::JpegEncoder::new(&mut jpeg)
            .write_image(&noise, 64, 64, ExtendedColorType::Rgb8)
            .unwrap();
        decode(&jpeg, 3).unwrap();
        decode(&[&jpeg[..], b"more"].concat(), 3).unwrap();
        for len in [jpeg.len() / 2, jpeg.len() - 1] {
            assert_eq!(told(&jpeg[..len]), "is not a whole image: it is cut off");
        }
        let mut huge = whole.clone();
        // Width and height in the header, whose checksum then counts for nothing.
        huge[16..24].copy_from_slice(&[0, 1, 0, 0, 0, 1, 0, 0]);
        let sum = crc(&huge[12..29]).to_be_bytes();
        huge[29..33].copy_from_slice(&sum);
        assert_eq!(told(&huge), "has 65536x65536 pixels, more than 178956970; make it smaller");
    }

    /// They may be whole, so nothing is to be restored.
    #[test]
    fn what_is_not_supported_is_not_called_damaged() {
        let told = |bytes: &[u8]| decode(bytes, 3).unwrap_err();
        let icon = b"\0\0\x01\0\x01\0\x01\x01\0\0\x01\0\x20\0\x04\0\0\0\x16\0\0\0....".to_vec();
        let avif = b"\0\0\0\x14ftypavif\0\0\0\0mif1".to_vec();
        // One gray pixel of 32 bits.
        let entries =
            [(256, 1), (257, 1), (258, 32), (259, 1), (262, 1), (273, 8), (277, 1), (278, 1), (279, 4)];
        let entry = |(tag, value): (u16, u16)| {
            [tag.to_le_bytes(), [3, 0], [1, 0], [0, 0], value.to_le_bytes(), [0, 0]].concat()
        };
        let directory = [vec![9, 0], entries.into_iter().flat_map(entry).collect(), vec![0; 4]].concat();
        let tiff: Vec<u8> = [&b"II*\0"[..], &12_u32.to_le_bytes(), &[7; 4], &directory].concat();
        for bytes in [icon, avif, tiff] {
            let told = told(&bytes);
            assert!(told.starts_with("is an image that Kolo does not read: "), "{told}");
            assert!(told.ends_with("; convert it to PNG"), "{told}");
        }
    }

    /// The checksum of PNG's chunks.
    fn crc(bytes: &[u8]) -> u32 {
        let mut crc = flate2::Crc::new();
        crc.update(bytes);
        crc.sum()
    }
}
