//! Parquet files in a build without the feature `parquet`.

use std::path::Path;

use crate::error::DataError;

/// Refuses a Parquet file.
pub(super) fn table(path: &Path, _: Vec<u8>) -> Result<(Vec<String>, Vec<Vec<String>>), DataError> {
    Err(DataError::NoParquet { path: path.into() })
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_parquet_file_is_refused_with_the_feature_that_reads_it() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("own.parquet");
        std::fs::write(&path, b"PAR1").unwrap();
        let error = crate::open(&format!("parquet:{}", path.display())).err().unwrap().to_string();
        let problem = "own.parquet: is a Parquet file, which this build does not read; build it with `--features parquet`, \
                       or save the table as CSV";
        assert!(error.ends_with(problem), "{error}");
    }
}
