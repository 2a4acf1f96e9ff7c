//! The user's own tables: what is read from them, and what is refused.

use std::fs;
use std::sync::Arc;

use kolo_data::{ImageDataSet, OpenOptions, Part, SampleShape, open_with};
use tempfile::TempDir;

fn opened(text: impl AsRef<[u8]>, label: Option<&str>) -> Result<Arc<dyn ImageDataSet>, String> {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("own.csv");
    fs::write(&path, text).unwrap();
    let options = OpenOptions { label: label.map(Into::into), ..OpenOptions::default() };
    let opened = open_with(&format!("csv:{}", path.display()), &options);
    opened.map_err(|error| error.to_string().replace(&path.display().to_string(), "own.csv"))
}

#[test]
fn columns_are_normalized_and_classes_are_sorted() {
    let data = opened("a,kind,b\n1,red,5\n3,\"dark, blue\",5\n", Some("kind")).unwrap();
    assert_eq!(data.shape(), SampleShape { channels: 1, height: 1, width: 2, classes: 2, is_text: false });
    assert_eq!(data.preprocessing().unwrap().noun(), "row");
    let batch = data.batch(Part::Train, &[0, 1], None).unwrap();
    assert_eq!((batch.images, batch.labels), (vec![-1.0, 0.0, 1.0, 0.0], vec![1, 0]));
    assert_eq!(Part::ALL.map(|part| data.samples(part)), [2, 0, 0]);
    let marked = opened("\u{feff}kind,b\nred,1\n", Some("kind")).unwrap();
    assert_eq!(marked.shape().classes, 1, "the mark is no part of the name");
    let by_number = opened("label,x\n10,1\n9,2\n10,3\n", None).unwrap();
    assert_eq!(by_number.batch(Part::Train, &[0, 1, 2], None).unwrap().labels, [1, 0, 1]);
    let last = opened("x,y\n1,b\n2,a\n", None).unwrap();
    assert_eq!(last.batch(Part::Train, &[0, 1], None).unwrap().labels, [1, 0]);
    let many: String = (0..300).map(|class| format!("1,{class}\n")).collect();
    let many = opened(format!("x,y\n{many}"), None).unwrap();
    assert_eq!(many.batch(Part::Train, &[299], None).unwrap().labels, [299]);
}

/// Macs write an umlaut as two characters.
#[test]
fn names_are_the_same_in_either_form_of_unicode() {
    let two = opened("L\u{e4}nge,Art\n1,gr\u{fc}n\n2,gru\u{308}n\n", Some("Art")).unwrap();
    assert_eq!(two.shape().classes, 1);
    let warning = "own.csv has 1 class, `gr\u{fc}n`, so there is nothing to learn; name another column than `Art` with --label";
    assert!(two.warnings()[0].ends_with(warning) && two.warnings().len() == 1, "{:?}", two.warnings());
    let columns = |data: Arc<dyn ImageDataSet>| data.preprocessing().unwrap().table.unwrap();
    let label = opened("La\u{308}nge,b\n1,2\n3,4\n", Some("L\u{e4}nge")).unwrap();
    assert_eq!(columns(label).label, "L\u{e4}nge");
    let twice = opened("a\u{308},\u{e4},b\n1,2,x\n", None).err().unwrap();
    assert!(twice.contains("two columns have the name `\u{e4}`"), "{twice}");
}

/// Seconds since 1970 in single precision would all be the same.
#[test]
fn large_numbers_keep_their_differences() {
    let data = opened("time,label\n1700000000,a\n1700000002,b\n", None).unwrap();
    assert_eq!(data.batch(Part::Train, &[0, 1], None).unwrap().images, [-1.0, 1.0]);
    let other = opened("seconds,label\n1700000000,a\n1700000002,b\n", None).unwrap();
    assert_ne!(data.fingerprint(Part::Train), other.fingerprint(Part::Train), "other names of columns");
}

#[test]
fn the_line_and_the_column_of_what_is_wrong_are_named() {
    let refused = |text: &str, label: Option<&str>| opened(text, label).err().unwrap();
    let missing = refused("a,b\n1,x\n", Some("class"));
    assert_eq!(missing, "--label class: own.csv has no such column; it has a, b");
    for (text, told) in [
        ("", "line 1: there is no header; the first line names the columns"),
        ("a,b\n", "line 1: there are no lines after the header"),
        ("b\nx\n", "line 1: there is one column; a table has numbers and a column of classes"),
        ("a,b\n1,x\n\n,y\n", "line 4: column `a` is empty; fill it, or remove the line"),
        ("a,b\n1,x\n2\n", "line 3: 1 cells, but the header has 2"),
        (
            "a,b\n1,x\ntwo,y\n",
            "line 3: `two` in column `a` is not a number; if `a` has the classes, give --label a",
        ),
        ("a,b\nNaN,x\n", "line 2: `NaN` in column `a` is not finite"),
        ("a,b\ninf,x\n", "line 2: `inf` in column `a` is not finite"),
        ("a,b\n1,x\n2,y\n1e39,y\n", "line 4: `1e39` in column `a` is too large for single precision"),
        ("a,b\n1e200,x\n-1e200,y\n", "line 2: `1e200` in column `a` is too large for single precision"),
        ("a,b\n1e308,x\n1e308,y\n", "line 2: `1e308` in column `a` is too large for single precision"),
        (
            "5.1,3,x\n4.9,2,y\n",
            "line 1: `5.1` is a number, but the first line names the columns; add such a line",
        ),
        ("a,a,b\n1,2,x\n", "line 1: two columns have the name `a`; rename one"),
        (
            "a,b\n1,0.5\n",
            "line 2: `0.5` in column `b` is not a class: classes are whole numbers or names; name their column with --label: a, b",
        ),
        ("a,b\n1,\"x\n", "line 2: a quote does not end"),
    ] {
        assert_eq!(refused(text, None), format!("own.csv, {told}"));
    }
    let named = refused("a,b\n1,x\ntwo,y\n", Some("b"));
    assert_eq!(named, "own.csv, line 3: `two` in column `a` is not a number");
    let one = "line 1: there is one column; a table has numbers and a column of classes; its cells are separated by";
    for (separator, name) in [(";", "semicolons"), ("\t", "tabs"), ("|", "vertical bars")] {
        let told = format!("own.csv, {one} {name}: put commas between them, and write 0.5, not 0,5");
        assert_eq!(refused(&["a,b\n", "1,x\n"].concat().replace(',', separator), None), told);
    }
    let utf16 = |text: &str, mark: &[u8], bytes: fn(u16) -> [u8; 2]| {
        let text: Vec<u8> = text.encode_utf16().flat_map(bytes).collect();
        opened([mark, &text].concat(), None).err().unwrap()
    };
    let told = "own.csv: is UTF-16; convert the text, for example by `iconv -f UTF-16 -t UTF-8`";
    assert_eq!(utf16("a,b\n1,x\n", b"\xff\xfe", u16::to_le_bytes), told);
    assert_eq!(utf16("ä,b\n1,x\n", b"\xfe\xff", u16::to_be_bytes), told);
    assert_eq!(utf16("a,b\n1,x\n", b"", u16::to_le_bytes), told);
    let latin = opened(b"a,b\n1,x\n2,\xff\n", None).err().unwrap();
    assert!(latin.starts_with("own.csv: byte 10 is not UTF-8, in line 3; convert the text"), "{latin}");
}

#[test]
fn rows_for_validation_take_no_part_in_the_means() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("own.csv");
    let rows: String = (0..10).map(|row| format!("{},{}\n", row * row, row % 2)).collect();
    fs::write(&path, format!("x,y\n{rows}")).unwrap();
    let options = OpenOptions { val_split: Some(0.3), seed: 5, ..OpenOptions::default() };
    let data = open_with(&format!("csv:{}", path.display()), &options).unwrap();
    assert_eq!(Part::ALL.map(|part| data.samples(part)), [7, 0, 3]);
    let trained = data.batch(Part::Train, &(0..7).collect::<Vec<_>>(), None).unwrap().images;
    let [sum, squares] = [1, 2].map(|power| trained.iter().map(|x| f64::from(*x).powi(power)).sum::<f64>());
    assert!(sum.abs() < 1e-5 && (squares - 7.0).abs() < 1e-5, "{sum} {squares}");
    let columns = data.preprocessing().unwrap().table.unwrap();
    assert_eq!((columns.numbers[0].name.as_str(), columns.label.as_str()), ("x", "y"));
}

/// Tables of a trained model need no training rows; their columns are found by name.
#[test]
fn a_trained_model_brings_its_columns_along() {
    let folder = TempDir::new().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("train.csv", "x,y\n1,a\n3,b\n");
    let open = |name: &str, options: &OpenOptions| {
        open_with(&format!("csv:{}", folder.path().join(name).display()), options)
    };
    let trained = open("", &OpenOptions::default()).unwrap().preprocessing();
    // A table that has not changed has the fingerprint of the training.
    write("mixed.csv", "x,y,z\n1,a,2\n3,b,9\n");
    let options = OpenOptions { label: Some("y".into()), ..OpenOptions::default() };
    let mixed = open("mixed.csv", &options).unwrap();
    let again = OpenOptions { trained: mixed.preprocessing(), ..OpenOptions::default() };
    let again = open("mixed.csv", &again).unwrap();
    assert_eq!(again.fingerprint(Part::Train), mixed.fingerprint(Part::Train));
    fs::remove_file(folder.path().join("train.csv")).unwrap();
    let options = OpenOptions { trained, whole_is_test: true, ..OpenOptions::default() };
    write("test.csv", "y,id,x\nb,7,5\n");
    for name in ["", "test.csv"] {
        let data = open(name, &options).unwrap();
        assert_eq!(Part::ALL.map(|part| data.samples(part)), [0, 1, 0], "{name}");
        let batch = data.batch(Part::Test, &[0], None).unwrap();
        assert_eq!((batch.images, batch.labels), (vec![3.0], vec![1]));
    }
    write("test.csv", "x\n5\n");
    let told = open("test.csv", &options).err().unwrap().to_string();
    assert!(told.ends_with("test.csv, line 1: there is no column `y`; the table has x"), "{told}");
}

#[test]
fn parts_are_tables_of_their_own() {
    let folder = TempDir::new().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    let open = || kolo_data::open(&format!("csv:{}", folder.path().display()));
    assert!(open().err().unwrap().to_string().contains("train.csv: cannot be read"));
    write("train.csv", "x,y\n1,a\n3,b\n");
    write("val.csv", "x,y\n5,b\n");
    let data = open().unwrap();
    assert_eq!(Part::ALL.map(|part| data.samples(part)), [2, 0, 1]);
    let batch = data.batch(Part::Validation, &[0], None).unwrap();
    assert_eq!((batch.images, batch.labels), (vec![3.0], vec![1]), "by the training rows");
    let warning =
        "the validation samples lack 1 class (a), which no score then judges; give more validation samples";
    assert_eq!(data.warnings(), [warning]);
    write("test.csv", "x,y\n5,c\n");
    let told = open().err().unwrap().to_string();
    assert!(told.ends_with("test.csv, line 2: the training table has no class `c`"), "{told}");
    write("test.csv", "z,y\n5,b\n");
    let told = open().err().unwrap().to_string();
    assert!(told.contains("test.csv, line 1: the header is not that of "), "{told}");
}
