//! The page: findings, the runs, their curves, and the use of their time.

mod buckets;
mod classes;
mod curves;
mod found;
mod generations;
mod overview;
mod predicted;
mod ranks;
mod section;
mod step_time;

use kolo_run_folder::Run;

use crate::findings::Finding;
use crate::html::{Html, element};
use crate::predicted::PredictedStep;
pub(crate) use found::word;
use section::{Ids, Section};

/// First bytes of every report, by which a file is recognized as one.
pub(crate) const BEGINNING: &str = "<!doctype html>\n<!-- kolo report -->\n";

const STYLE: &str = include_str!("style.css");

/// Content security policy: the page loads nothing and runs no script, whatever the files contain.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

pub(crate) fn html(found: &[(Run, Vec<Finding>)], predicted: &[PredictedStep]) -> String {
    let runs: Vec<&Run> = found.iter().map(|(run, _)| run).collect();
    let mut ids = Ids::default();
    let first = [found::section(found), overview::section(&runs)];
    let curves = curves::section(&runs, &mut ids);
    let classes = classes::section(&runs, &mut ids);
    let figures = [
        step_time::section(&runs, &mut ids),
        ranks::section(&runs, &mut ids),
        buckets::section(&runs, &mut ids),
        generations::section(&runs, &mut ids),
    ];
    let first = first.into_iter().chain(predicted::section(&runs, predicted));
    let sections: Vec<Section> = first.chain([curves]).chain(classes).chain(figures).collect();
    let names = runs.iter().map(|run| run.name.as_str()).collect::<Vec<_>>().join(", ");
    let header = element("header")
        .add(element("h1").add("Training report"))
        .add(element("p").add(names.as_str()))
        .add(links(&sections));
    let main: Html = sections.into_iter().map(Section::html).collect();
    let body = element("body").add(header).add(element("main").add(main)).add(footer());
    let page = element("html").with("lang", "en").add(head(&names)).add(body);
    format!("{BEGINNING}{}\n", Html::from(page).into_string())
}

fn head(names: &str) -> Html {
    let mut head = Html::literal(
        "<meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><link rel=\"icon\" href=\"data:,\">",
    );
    // `Element` always has an end tag, which `meta` must not have; the content is constant.
    head.push(Html::literal("<meta http-equiv=\"Content-Security-Policy\" content=\""));
    head.push(Html::literal(POLICY));
    head.push(Html::literal("\">"));
    head.push(element("title").add(format!("{names} · Kolo report")));
    head.push(element("style").add(Html::literal(STYLE)));
    element("head").add(head).into()
}

fn links(sections: &[Section]) -> Html {
    let link = |section: &Section| element("a").with("href", format!("#{}", section.id)).add(section.title);
    element("nav").with("aria-label", "Sections").add(sections.iter().map(link).collect::<Html>()).into()
}

fn footer() -> Html {
    let text = "Times are rank 0's, unless another rank is named. Waiting for communication is the part of a \
                 step in which its training thread waited; hidden communication went on while it did other \
                 work. docs/run-folder.md defines every figure. Written by Kolo ";
    element("footer").add(text).add(concat!(env!("CARGO_PKG_VERSION"), ".")).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;
    use crate::findings::findings;

    fn page(runs: Vec<Run>) -> String {
        let found = runs.into_iter().map(|run| {
            let found = findings(&run);
            (run, found)
        });
        html(&found.collect::<Vec<_>>(), &[])
    }

    #[test]
    fn a_page_asks_for_nothing_and_runs_nothing() {
        let text = page(vec![example::run(1000), example::run(20)]);
        assert!(text.starts_with(BEGINNING) && text.ends_with("</html>\n"));
        for forbidden in ["http://", "https://", "<script", "src=", "@import", "url(", "NaN", "inf"] {
            assert!(!text.replace("Content-Security-Policy", "").contains(forbidden), "{forbidden}");
        }
    }

    #[test]
    fn texts_from_files_are_no_markup() {
        let mut run = example::run(60);
        run.name = "<b>run</b>".into();
        run.unit = "<i>".into();
        run.remarks = vec!["<img src=x>".into()];
        run.epochs.names[2] = "test_<u>".into();
        run.settings.0.insert("<s>".into(), "\"<script>\"".into());
        run.summary.as_mut().unwrap().warnings = vec!["<script>alert(1)</script>".into()];
        let text = page(vec![run]);
        for markup in ["<b>", "<i>", "<img", "<u>", "<s>", "<script"] {
            assert!(!text.contains(markup), "{markup}");
        }
        assert!(text.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
    }

    #[test]
    fn a_run_that_has_only_begun_has_a_page() {
        let mut run = example::run(0);
        (run.buckets, run.summary) = (Vec::new(), None);
        run.epochs = kolo_run_folder::NumberTable::default();
        let text = page(vec![run]);
        assert!(text.contains("Nothing stands out") && text.contains("No step"), "{text}");
    }

    #[test]
    fn ids_are_given_once() {
        let text = page(vec![example::run(100), example::run(50)]);
        let ids: Vec<&str> = text.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        for id in &ids {
            assert_eq!(ids.iter().filter(|other| *other == id).count(), 1, "{id}");
        }
        assert!(ids.len() > 20);
    }
}
