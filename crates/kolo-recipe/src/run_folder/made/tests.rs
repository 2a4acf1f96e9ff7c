//! Folders that are made by one job, by several at once, or not at all.

use super::*;

#[test]
fn of_two_jobs_that_begin_at_once_the_one_with_the_claim_keeps_its_configuration() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("run");
    let [first, second] = [0.1, 0.05].map(|lr| {
        let mut recipe = Recipe::default();
        recipe.rate.lr = lr;
        recipe
    });
    let folder = RunFolder::create_or_continue(path.clone(), &first, Some("1")).unwrap();
    RunFolder::create_or_continue(path.clone(), &second, Some("2")).unwrap();
    assert_eq!(folder.config().unwrap().rate.lr, 0.05);
    let claimed = folder.claimed(kolo_claim::Candidate::alone());
    claimed.check().unwrap();
    claimed.keep_config(&first).unwrap();
    assert_eq!(claimed.config().unwrap().rate.lr, 0.1);
    std::fs::remove_file(path.join(CONFIG)).unwrap();
    claimed.keep_config(&first).unwrap();
    assert!(!path.join(CONFIG).exists());
}

/// None of them takes another's draft away, whoever makes the folder.
#[test]
fn jobs_that_begin_in_one_folder_at_the_same_moment_all_find_it() {
    let place = tempfile::tempdir().unwrap();
    for round in 0..16 {
        let path = place.path().join(round.to_string());
        if round % 2 == 0 {
            fs::create_dir(&path).unwrap();
        }
        let together = std::sync::Barrier::new(4);
        let begin = |number: usize| {
            let config = Recipe { seed: number as u64 % 2, ..Recipe::default() };
            let job = (round % 4 < 2).then(|| number.to_string());
            together.wait();
            RunFolder::create_or_continue(path.clone(), &config, job.as_deref()).map(drop)
        };
        std::thread::scope(|scope| {
            let jobs: Vec<_> = (0..4).map(|number| scope.spawn(move || begin(number))).collect();
            jobs.into_iter().for_each(|job| job.join().unwrap().unwrap());
        });
        let left = fs::read_dir(&path).unwrap().map(|file| file.unwrap().file_name());
        let left: Vec<_> = left.filter(|name| name != CONFIG && name != JOB).collect();
        assert!(RunFolder::at(path).config().is_ok() && left.is_empty(), "{left:?}");
    }
}

#[test]
fn a_run_that_goes_on_records_how_its_state_is_divided() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("run");
    RunFolder::create(path.clone(), &Recipe { verify_every: 7, ..Recipe::default() }).unwrap();
    for (shard, redundancy) in [("nothing", 1), ("optimizer", 2), ("optimizer", 1), ("nothing", 1)] {
        let config = Recipe { shard: shard.into(), redundancy, ..Recipe::default() };
        let folder = RunFolder::create_or_continue(path.clone(), &config, None).unwrap();
        let written = folder.config().unwrap();
        // Another setting that changes no bit stays as it was.
        assert_eq!((&*written.shard, written.redundancy, written.verify_every), (shard, redundancy, 7));
    }
}

#[test]
fn a_folder_that_cannot_be_made_leaves_nothing_and_is_named_with_what_is_in_the_way() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file");
    fs::write(&file, "").unwrap();
    for made in [RunFolder::create, |path, config: &Recipe| RunFolder::claim(path, config, "job")] {
        let error = made(file.join("run"), &Recipe::default()).unwrap_err();
        let words =
            format!("the run folder {} cannot be made ({}: ", file.join("run").display(), file.display());
        assert!(error.is_input() && error.to_string().starts_with(&words), "{error}");
        let error = made("/proc/run".into(), &Recipe::default()).unwrap_err();
        assert!(error.is_input() && error.to_string().ends_with("; choose another --out"), "{error}");
    }
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
}

#[test]
fn a_folder_whose_making_was_cut_off_is_made_anew() {
    let place = tempfile::tempdir().unwrap();
    let (path, config) = (place.path().join("run"), Recipe::default());
    let create = |path, config: &Recipe| RunFolder::create_or_continue(path, config, None);
    for made in [RunFolder::create, create, |path, config: &Recipe| RunFolder::claim(path, config, "job")] {
        for draft in [None, Some(path.join(".draft-0123"))] {
            fs::create_dir(&path).unwrap();
            draft.iter().for_each(|draft| fs::write(draft, "epo").unwrap());
            assert!(made(path.clone(), &config).unwrap().is_run());
            // It may be that of another job, which needs it.
            assert!(draft.is_none_or(|draft| draft.exists()));
            fs::remove_dir_all(&path).unwrap();
        }
        fs::create_dir(&path).unwrap();
        fs::write(path.join("thesis.tex"), "mine").unwrap();
        assert!(matches!(made(path.clone(), &config), Err(Error::NotARun { .. })));
        assert_eq!(fs::read_dir(&path).unwrap().count(), 1);
        fs::remove_dir_all(&path).unwrap();
    }
}

#[test]
fn a_folder_that_is_away_is_waited_for_and_not_made_anew() {
    let place = tempfile::tempdir().unwrap();
    let (path, away) = (place.path().join("run"), place.path().join("away"));
    RunFolder::claim(path.clone(), &Recipe::default(), "job").unwrap();
    fs::rename(&path, &away).unwrap();
    let find = |limit| RunFolder::wait_for(Some(path.clone()), "job", Duration::from_millis(limit));
    assert!(matches!(find(60), Err(Error::FolderGone { .. })) && !path.exists());
    std::thread::scope(|scope| {
        let found = scope.spawn(|| find(60_000));
        fs::rename(&away, &path).unwrap();
        assert_eq!(found.join().unwrap().unwrap().path(), path);
    });
}
