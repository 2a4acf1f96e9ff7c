//! Scores of each class, the confusion matrix, and the most wrong samples.

use kolo_run_folder::{ClassScores, Classification, Run};

use super::section::{Ids, Section, gallery, paragraph, titled};
use crate::figures::{Matrix, Table};
use crate::html::{Html, element};
use crate::units::{count, plural};

/// Most classes of a picture; of more there is a table of the most frequent confusions.
const MOST_CLASSES: usize = 50;
/// Confusions in that table.
const MOST_CONFUSIONS: usize = 20;

/// Returns the section, if a run has trained a classifier and is complete.
pub(super) fn section(runs: &[&Run], ids: &mut Ids) -> Option<Section> {
    let of = |run: &&Run| Some((run.name.clone(), run.summary.as_ref()?.classification.clone()?));
    let all: Vec<(String, Classification)> = runs.iter().filter_map(of).collect();
    if all.is_empty() {
        return None;
    }
    let mut body = Html::default();
    body.push(paragraph(
        "Recall is the share of a class's samples that are recognized, precision the share of the samples \
         predicted as this class that are of it, F1 their harmonic mean.",
    ));
    for (name, found) in &all {
        let titled = |title: &str| titled(name, runs.len(), title);
        let title = titled("Confusion of classes");
        match found.classes.len() <= MOST_CLASSES {
            true => {
                body.push(paragraph(
                    "A cell of the picture is the darker, the larger its share of the samples of its row.",
                ));
                body.push(gallery([matrix(title, &found.classes).html(&ids.next())]));
            }
            false => body.push(under(&titled("Most frequent confusions"), &confusions(&found.classes))),
        }
        let part = if found.part == "val" { "validation" } else { "test" };
        let title = titled(&format!("Classes, on the {part} samples"));
        body.push(under(&title, &scores(&title, &found.classes)));
        if !found.most_wrong.is_empty() {
            let title = titled("Most wrong samples");
            body.push(under(&title, &most_wrong(&title, found)));
        }
    }
    Some(Section { id: "classes", title: "Classes", body })
}

fn under(title: &str, table: &Table) -> Html {
    [element("h3").add(title), table.html()].into_iter().collect::<Html>()
}

fn matrix(title: String, classes: &[ClassScores]) -> Matrix {
    let cells = classes.iter().enumerate().flat_map(|(row, class)| {
        let here = class.predicted.iter().filter(|(guess, _)| (**guess as usize) < classes.len());
        here.map(move |(guess, count)| (row, *guess as usize, *count))
    });
    let cells: Vec<(usize, usize, u64)> = cells.collect();
    let right: u64 = cells.iter().filter(|(row, column, _)| row == column).map(|(.., count)| count).sum();
    let all: u64 = cells.iter().map(|(.., count)| count).sum();
    let about = format!(
        "A row for each of {} classes, a column for each predicted class. {right} of {} are on the diagonal: recognized.",
        classes.len(),
        plural(all as usize, "sample"),
    );
    Matrix {
        table: confusions_of_all(&title, classes),
        title,
        about,
        names: classes.iter().map(|class| class.class.clone()).collect(),
        axes: ["class", "predicted class"],
        cells,
    }
}

/// Returns the whole matrix as a table.
fn confusions_of_all(title: &str, classes: &[ClassScores]) -> Table {
    let names = classes.iter().map(|class| class.class.clone());
    let mut table = Table::new(title, std::iter::once("class".to_string()).chain(names));
    for class in classes {
        let guess = |guess: usize| class.predicted.get(&(guess as u32)).copied().unwrap_or(0).to_string();
        table.add(std::iter::once(class.class.clone()).chain((0..classes.len()).map(guess)));
    }
    table
}

fn confusions(classes: &[ClassScores]) -> Table {
    let mut all = Vec::new();
    for (label, class) in classes.iter().enumerate() {
        let wrong = class.predicted.iter().filter(|(guess, _)| **guess as usize != label);
        all.extend(wrong.map(|(guess, count)| (*count, &class.class, *guess)));
    }
    all.sort_by_key(|(count, ..)| std::cmp::Reverse(*count));
    let mut table = Table::new("Most frequent confusions", ["class", "predicted class", "samples"]);
    for (samples, class, guess) in all.into_iter().take(MOST_CONFUSIONS) {
        let guess =
            classes.get(guess as usize).map_or_else(|| guess.to_string(), |class| class.class.clone());
        table.add([class.clone(), guess, samples.to_string()]);
    }
    table
}

fn scores(title: &str, classes: &[ClassScores]) -> Table {
    let mut table = Table::new(title, ["class", "label", "samples", "precision", "recall", "F1"]);
    for (label, ClassScores { class, samples, precision, recall, f1, .. }) in classes.iter().enumerate() {
        let shares = [*precision, *recall, *f1].map(percent);
        table.add([class.clone(), label.to_string(), count(*samples as usize)].into_iter().chain(shares));
    }
    table
}

fn most_wrong(title: &str, found: &Classification) -> Table {
    let mut table = Table::new(title, ["sample", "class", "predicted class", "probability"]);
    for wrong in &found.most_wrong {
        let name = wrong.name.clone().unwrap_or_else(|| wrong.sample.to_string());
        table.add([name, wrong.class.clone(), wrong.predicted.clone(), percent(wrong.probability)]);
    }
    table
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use kolo_run_folder::WrongSample;

    use super::*;
    use crate::example;

    /// Of 4 cats one is taken for a dog; the 2 dogs are recognized.
    fn pets() -> Classification {
        let class = |class: &str, samples, [precision, recall, f1]: [f64; 3], predicted: &[(u32, u64)]| {
            let (class, predicted) = (class.into(), predicted.iter().copied().collect());
            ClassScores { class, samples, precision, recall, f1, predicted }
        };
        let classes = vec![
            class("<cat>", 4, [1.0, 0.75, 6.0 / 7.0], &[(0, 3), (1, 1)]),
            class("dog", 2, [2.0 / 3.0, 1.0, 0.8], &[(1, 2)]),
        ];
        let wrong = WrongSample {
            sample: 3,
            name: Some("test/<cat>/3.png".into()),
            class: "<cat>".into(),
            predicted: "dog".into(),
            probability: 0.98765,
        };
        Classification { part: "test".into(), classes, not_finite: 0, most_wrong: vec![wrong] }
    }

    fn html(found: Classification) -> String {
        let mut run = example::run(10);
        run.summary.as_mut().unwrap().classification = Some(found);
        section(&[&run], &mut Ids::default()).unwrap().html().into_string()
    }

    #[test]
    fn classes_have_a_picture_and_tables() {
        let text = html(pets());
        for part in [
            "5 of 6 samples are on the diagonal",
            "the darker, the larger its share",
            "0 &lt;cat&gt;</text>",
            "1 dog</text>",
            "<th scope=\"row\">dog</th><td>1</td><td>2</td>",
            "<td>4</td><td>100.0 %</td><td>75.0 %</td><td>85.7 %</td>",
            "<td>2</td><td>66.7 %</td><td>100.0 %</td><td>80.0 %</td>",
            "test/&lt;cat&gt;/3.png</th><td>&lt;cat&gt;</td><td>dog</td><td>98.8 %</td>",
            "Classes, on the test samples",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(text.matches("<rect").count(), 3);
        assert!(!text.contains("NaN") && !text.contains("<cat>"), "{text}");
        assert!(section(&[&example::run(10)], &mut Ids::default()).is_none());
    }

    #[test]
    fn many_classes_have_their_most_frequent_confusions() {
        let mut found = pets();
        found.classes.extend(vec![found.classes[1].clone(); MOST_CLASSES]);
        // The other dogs are taken for the first one.
        let text = html(found);
        assert!(!text.contains("<svg") && text.contains("Most frequent confusions"), "{text}");
        assert_eq!(text.matches("<td>dog</td><td>2</td>").count(), MOST_CONFUSIONS, "{text}");
    }
}
