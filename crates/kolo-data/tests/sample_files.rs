//! Files of a user as samples of a trained model.

use std::fs;
use std::path::Path;

use image::{GrayImage, RgbImage};
use kolo_data::{
    Augment, DataSet, ImageSet, Images, OpenOptions, Part, Preprocessing, SampleFiles, TableColumns,
    TablePlace, open_with,
};
use tempfile::TempDir;

fn row(path: &Path, how: &Preprocessing) -> Vec<(TablePlace, Result<Vec<f32>, String>)> {
    let rows = SampleFiles::new(how.clone()).unwrap().rows(path).unwrap();
    rows.into_iter().map(|(line, row)| (line, row.map(|b| b.images).map_err(|e| e.to_string()))).collect()
}

#[test]
fn an_image_is_preprocessed_as_in_evaluation() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("a class/1.png");
    fs::create_dir(path.parent().unwrap()).unwrap();
    RgbImage::from_fn(37, 23, |x, y| image::Rgb([(x * 7) as u8, (y * 11) as u8, (x * y) as u8]))
        .save(&path)
        .unwrap();
    for channels in [1, 3] {
        let options = OpenOptions { size: Some(9), channels: Some(channels), ..OpenOptions::default() };
        let data = open_with(&format!("folder:{}", folder.path().display()), &options).unwrap();
        let files = SampleFiles::new(data.preprocessing().unwrap()).unwrap();
        assert_eq!(files.image(&path).unwrap(), data.batch(Part::Train, &[0], None).unwrap());
        assert_eq!((files.shape(), files.classes()), (data.shape(), vec!["a class".to_string()]));
    }
    let told = SampleFiles::new(
        open_with("fashion-mnist-small", &OpenOptions::default()).unwrap().preprocessing().unwrap(),
    )
    .unwrap()
    .image(&folder.path().join("none.png"))
    .unwrap_err();
    assert!(told.to_string().contains("none.png cannot be read: No such file"), "{told}");
}

#[test]
fn an_image_of_a_set_of_one_size_keeps_its_pixels_and_others_are_resized() {
    let pixels: Vec<u8> = (0..48).map(|i| (i * 5) as u8).collect();
    let images =
        |pixels: &[u8]| Images { channels: 1, height: 6, width: 8, pixels: pixels.into(), labels: vec![0] };
    let set = ImageSet::spread([images(&pixels), images(&pixels)], [3, 9], 2, Augment::default()).unwrap();
    let files = SampleFiles::new(set.preprocessing().unwrap()).unwrap();
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("1.png");
    GrayImage::from_raw(8, 6, pixels).unwrap().save(&path).unwrap();
    assert_eq!(files.image(&path).unwrap(), set.batch(Part::Test, &[0], None).unwrap());
    assert_eq!(files.classes(), ["0", "1"]);
    RgbImage::new(100, 7).save(&path).unwrap();
    assert_eq!(files.image(&path).unwrap().shape, [1, 3, 9, 9]);
}

#[test]
fn rows_are_read_by_the_names_of_their_columns() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("own.csv");
    fs::write(&path, "a,b,kind\n1,1700000000,red\n3,1700000002.5,blue\n").unwrap();
    let data = open_with(&format!("csv:{}", path.display()), &OpenOptions::default()).unwrap();
    let how = data.preprocessing().unwrap();
    let trained = [0, 1].map(|index| data.batch(Part::Train, &[index], None).unwrap().images);
    fs::write(&path, "b,more,a\n1700000000,x,1\n,x,2\n1700000002.5,x,3\n").unwrap();
    let rows = row(&path, &how);
    assert_eq!(
        [&rows[0], &rows[2]],
        [&(TablePlace::Line(2), Ok(trained[0].clone())), &(TablePlace::Line(4), Ok(trained[1].clone()))]
    );
    assert!(
        rows[1].1.as_ref().unwrap_err().ends_with("line 3: column `b` is empty; fill it, or remove the line")
    );
    fs::write(&path, "b,c\n1,2\n").unwrap();
    let told = SampleFiles::new(how.clone()).unwrap().rows(&path).err().unwrap().to_string();
    assert!(told.ends_with("line 1: there is no column `a`; the table has b, c"), "{told}");
    for (text, problem) in [
        ("a,b\n", "there are no lines after the header"),
        (
            "a;b\n1;2\n",
            "there is no column `a`; the table has a;b; its cells are separated by semicolons: put",
        ),
    ] {
        fs::write(&path, text).unwrap();
        let told = SampleFiles::new(how.clone()).unwrap().rows(&path).err().unwrap().to_string();
        assert!(told.contains(&format!("own.csv, line 1: {problem}")), "{told}");
    }
}

#[test]
fn a_preprocessing_that_contradicts_itself_is_refused() {
    let usual = open_with("fashion-mnist-small", &OpenOptions::default()).unwrap().preprocessing().unwrap();
    let refused = |change: fn(&mut Preprocessing)| {
        let mut how = usual.clone();
        change(&mut how);
        SampleFiles::new(how).err().unwrap()
    };
    assert_eq!(refused(|how| how.num_classes = 9), "num_classes is 9, and label_names has 10");
    let twice = "label_names has `Trouser` twice";
    assert_eq!(refused(|how| how.label_names[0] = "Trouser".into()), twice);
    assert_eq!(refused(|how| how.label_names[3].clear()), "label_names has an empty name");
    for std in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        let told = format!("std is {std}, which is not a finite number above 0");
        let mut how = usual.clone();
        how.std[0] = std;
        assert_eq!(SampleFiles::new(how).err(), Some(told));
    }
    assert_eq!(refused(|how| how.mean[0] = f32::NAN), "mean is NaN, which is not finite");
    assert_eq!(refused(|how| how.mean.clear()), "mean and std are not those of each channel");
    assert!(refused(|how| how.image_size[1] = 0).ends_with("is no size"));
    assert!(refused(|how| how.image_size[0] = 2).ends_with("cannot be made of an image file"));
    assert!(refused(|how| how.resize = Some(8)).ends_with("cannot be made of an image file"));
}

#[test]
fn columns_that_contradict_themselves_are_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("own.csv");
    fs::write(&path, "a,b,kind\n1,0,red\n3,1e-30,blue\n").unwrap();
    let data = open_with(&format!("csv:{}", path.display()), &OpenOptions::default()).unwrap();
    let usual = data.preprocessing().unwrap();
    let refused = |change: fn(&mut TableColumns)| {
        let mut how = usual.clone();
        change(how.table.as_mut().unwrap());
        SampleFiles::new(how).err().unwrap()
    };
    let above_0 = "std of column `a` is 0, which is not a finite number above 0";
    assert_eq!(refused(|table| table.numbers[0].std = 0.0), above_0);
    assert!(refused(|table| table.numbers[0].std = -2.0).ends_with("above 0"));
    assert!(refused(|table| table.numbers[0].std = f64::NAN).ends_with("above 0"));
    let told = "mean of column `b` is 1e300, which is too large for single precision";
    assert_eq!(refused(|table| table.numbers[1].mean = 1e300), told);
    assert_eq!(refused(|table| table.numbers[1].name = "a".into()), "table has the column `a` twice");
    assert_eq!(refused(|table| table.label = "b".into()), "table has the column `b` twice");
    assert_eq!(refused(|table| drop(table.numbers.pop())), "input_size is not the number of columns");
    // 1e30 is a number, but not in the deviations of this column, which are 5e-31.
    fs::write(&path, "a,b\n1,1e30\n1,1e39\n1,inf\n").unwrap();
    let told = row(&path, &usual).into_iter().map(|(_, row)| row.unwrap_err());
    let told: Vec<_> = told.map(|told| told.rsplit_once("own.csv, ").unwrap().1.to_owned()).collect();
    assert_eq!(
        told,
        [
            "line 2: a number in column `b` is too far from the training rows' mean for single precision",
            "line 3: `1e39` in column `b` is too large for single precision",
            "line 4: `inf` in column `b` is not finite",
        ]
    );
}
