//! Tables as Parquet files, read row by row ([Apache Parquet](https://parquet.apache.org/docs/file-format/)).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;

use crate::error::{DataError, TablePlace};

/// Names of the columns, and the cells of each row as text.
type Cells = (Vec<String>, Vec<Vec<String>>);

/// Returns the columns and rows of a Parquet file.
pub(super) fn table(path: &Path, bytes: Vec<u8>) -> Result<Cells, DataError> {
    // At some damaged files the reader panics.
    catch_unwind(AssertUnwindSafe(|| read(path, bytes))).unwrap_or_else(|_| {
        let problem = "cannot be read: the file is damaged".into();
        Err(DataError::Table { path: path.into(), place: TablePlace::Schema, problem })
    })
}

fn read(path: &Path, bytes: Vec<u8>) -> Result<Cells, DataError> {
    let unreadable = |place: TablePlace| {
        move |error: ParquetError| DataError::Table {
            path: path.into(),
            place,
            problem: format!("cannot be read: {error}"),
        }
    };
    let file = SerializedFileReader::new(Bytes::from(bytes)).map_err(unreadable(TablePlace::Schema))?;
    let columns = file.metadata().file_metadata().schema().get_fields().iter();
    let columns = columns.map(|column| column.name().to_owned()).collect();
    let rows = file.get_row_iter(None).map_err(unreadable(TablePlace::Schema))?;
    let cells = rows.enumerate().map(|(number, row)| {
        let row = row.map_err(unreadable(TablePlace::Row(number + 1)))?;
        Ok(row.get_column_iter().map(|(_, field)| cell(field)).collect())
    });
    Ok((columns, cells.collect::<Result<_, DataError>>()?))
}

/// Returns the text of a cell; none is empty. A number's text has all of its digits.
fn cell(field: &Field) -> String {
    match field {
        Field::Null => String::new(),
        Field::Str(text) => text.clone(),
        Field::Float16(number) => f64::from(*number).to_string(),
        Field::Float(number) => f64::from(*number).to_string(),
        Field::Double(number) => number.to_string(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;
    use std::sync::Arc;

    use parquet::basic::Compression;
    use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, FloatType, Int64Type};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;
    use tempfile::TempDir;

    use crate::{OpenOptions, Part, SampleFiles, open_with};

    /// Writes a table of a whole number, two numbers and a class, in row groups of at most two rows.
    fn write(path: &PathBuf, compression: Compression, rows: &[(i64, Option<f64>, f32, &str)]) {
        let schema = "message table { required int64 a; optional double b; required float c; \
                      required binary kind (UTF8); }";
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let properties = Arc::new(WriterProperties::builder().set_compression(compression).build());
        let file = fs::File::create(path).unwrap();
        let mut writer = SerializedFileWriter::new(file, schema, properties).unwrap();
        for rows in rows.chunks(2) {
            let mut group = writer.next_row_group().unwrap();
            let mut column = group.next_column().unwrap().unwrap();
            let values: Vec<i64> = rows.iter().map(|row| row.0).collect();
            column.typed::<Int64Type>().write_batch(&values, None, None).unwrap();
            column.close().unwrap();
            let mut column = group.next_column().unwrap().unwrap();
            let values: Vec<f64> = rows.iter().filter_map(|row| row.1).collect();
            let there: Vec<i16> = rows.iter().map(|row| i16::from(row.1.is_some())).collect();
            column.typed::<DoubleType>().write_batch(&values, Some(&there), None).unwrap();
            column.close().unwrap();
            let mut column = group.next_column().unwrap().unwrap();
            let values: Vec<f32> = rows.iter().map(|row| row.2).collect();
            column.typed::<FloatType>().write_batch(&values, None, None).unwrap();
            column.close().unwrap();
            let mut column = group.next_column().unwrap().unwrap();
            let values: Vec<ByteArray> = rows.iter().map(|row| row.3.into()).collect();
            column.typed::<ByteArrayType>().write_batch(&values, None, None).unwrap();
            column.close().unwrap();
            group.close().unwrap();
        }
        writer.close().unwrap();
    }

    #[test]
    fn a_parquet_file_has_the_samples_of_the_same_table_as_text() {
        let folder = TempDir::new().unwrap();
        let rows = [
            (1_700_000_000_000, Some(0.1), 0.1, "weiß"),
            (1_700_000_000_002, Some(-1e-300), 3.0, "rot"),
            (1_700_000_000_007, Some(2.5), 1e-40, "weiß"),
        ];
        let text = folder.path().join("own.csv");
        let lines: String = rows
            .iter()
            .map(|(a, b, c, kind)| format!("{a},{},{},{kind}\n", b.unwrap(), f64::from(*c)))
            .collect();
        fs::write(&text, format!("a,b,c,kind\n{lines}")).unwrap();
        let options = OpenOptions { label: Some("kind".into()), ..OpenOptions::default() };
        let text = open_with(&format!("csv:{}", text.display()), &options).unwrap();
        for compression in [Compression::UNCOMPRESSED, Compression::SNAPPY] {
            let path = folder.path().join("own.parquet");
            write(&path, compression, &rows);
            let data = open_with(&format!("parquet:{}", path.display()), &options).unwrap();
            let batches = [&data, &text].map(|data| data.batch(Part::Train, &[2, 0, 1], None).unwrap());
            assert_eq!(batches[0], batches[1]);
            assert_eq!(data.fingerprint(Part::Train), text.fingerprint(Part::Train));
            assert_eq!(data.sample_name(Part::Train, 2).unwrap(), "row 3");
            let files = SampleFiles::new(data.preprocessing().unwrap()).unwrap().rows(&path).unwrap();
            let samples = data.batch(Part::Train, &[0], None).unwrap().images;
            assert_eq!(files[0].1.as_ref().unwrap().images, samples);
        }
    }

    #[test]
    fn the_row_and_the_column_of_what_is_wrong_are_named() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("own.parquet");
        let refused = |label: &str| {
            let options = OpenOptions { label: Some(label.into()), ..OpenOptions::default() };
            let error = open_with(&format!("parquet:{}", path.display()), &options).err().unwrap();
            error.to_string().replace(&path.display().to_string(), "own.parquet")
        };
        let rows = |b: Option<f64>| [(1, Some(2.0), 3.0, "x"), (1, Some(2.0), 3.0, "y"), (4, b, 6.0, "x")];
        write(&path, Compression::SNAPPY, &rows(None));
        assert_eq!(refused("kind"), "own.parquet, row 3: column `b` is empty; fill it, or remove the row");
        assert_eq!(refused("class"), "--label class: own.parquet has no such column; it has a, b, c, kind");
        assert_eq!(refused("a"), "own.parquet, row 1: `x` in column `kind` is not a number");
        write(&path, Compression::SNAPPY, &rows(Some(f64::NAN)));
        assert_eq!(refused("kind"), "own.parquet, row 3: `NaN` in column `b` is not finite");
        write(&path, Compression::SNAPPY, &[]);
        assert_eq!(refused("kind"), "own.parquet, schema: there are no rows");
        write(&path, Compression::SNAPPY, &rows(Some(5.0)));
        // Damaged anywhere, a file is refused or has other values.
        let bytes = fs::read(&path).unwrap();
        for place in (4..bytes.len()).step_by(17) {
            let mut damaged = bytes.clone();
            damaged[place] ^= 0xff;
            fs::write(&path, &damaged).unwrap();
            let _ = crate::open(&format!("parquet:{}", path.display()));
            fs::write(&path, &bytes[..place]).unwrap();
            assert!(refused("kind").starts_with("own.parquet, "), "cut at {place}");
        }
    }
}
