//! Groups of parameters: each tensor is stepped with its group's settings, in the same bits on any number of
//! ranks, with any buckets, after a checkpoint and after a change of ranks.

use std::sync::Arc;

use crate::common::bits;
use crate::common::checkpoints::at;
use crate::common::groups::{TENSORS, choices, config, groups, layout, replica, train};
use kolo_comm::{Group, Rank, threads};
use kolo_ddp::checkpoint;
use kolo_ddp::optimizer::{OPTIMIZERS, Settings};
use kolo_ddp::table::Choice;
use kolo_ddp::{Config, ParamGroup, Replica, SpanId};

/// The tensors that a bucket's border cuts.
fn cut(replica: &Replica) -> Vec<&'static str> {
    let slices: Vec<_> = replica.buckets().flat_map(|bucket| &bucket.slices).collect();
    let pieces = |n| slices.iter().filter(|slice| slice.span == SpanId(n)).count();
    (0..TENSORS.len()).filter(|n| pieces(*n) > 1).map(|n| TENSORS[n].0).collect()
}

#[test]
fn any_number_of_ranks_and_any_buckets_end_in_the_same_bits() {
    for (choice, of_block) in choices() {
        let train = |group, groups, mib| {
            let mut replica = replica(group, &config(groups, mib), &choice);
            train(&mut replica, 4);
            (bits(&mut replica), cut(&replica))
        };
        let whole = train(Group::alone(), groups(&of_block), 25.0);
        assert_ne!(whole.0, train(Group::alone(), Vec::new(), 25.0).0, "groups change something");
        for (world, mib) in [(1, 0.01), (2, 0.0625), (3, 0.01), (4, 25.0)] {
            let found = threads::spawn(world, |group| train(group, groups(&of_block), mib)).unwrap();
            for (bits, cut) in found {
                assert_eq!(cut, if mib == 25.0 { vec![] } else { vec!["block.weight", "table.weight"] });
                assert!(bits == whole.0, "{choice:?}, {world} ranks, buckets of {mib} MiB");
            }
        }
    }
}

#[test]
fn groups_that_change_nothing_change_no_bit() {
    for entry in OPTIMIZERS {
        let (choice, plain) = (Choice::new(entry.name), ParamGroup::of(["*.weight"]).with_lr_scale(1.0));
        let own = entry.complete(&Settings::default()).unwrap();
        let repeated = ParamGroup { settings: own, ..plain.clone() };
        let train = |groups| {
            let mut replica = replica(Group::alone(), &config(groups, 25.0), &choice);
            train(&mut replica, 3);
            bits(&mut replica)
        };
        let expected = train(Vec::new());
        assert!(train(vec![plain]) == expected && train(vec![repeated]) == expected, "{}", entry.name);
    }
}

#[test]
fn what_is_frozen_stays_as_it_is_to_the_bit() {
    for (choice, of_block) in choices() {
        let mut replica = replica(Group::alone(), &config(groups(&of_block), 0.01), &choice);
        let before = bits(&mut replica);
        train(&mut replica, 3);
        let after = bits(&mut replica);
        for span in layout().spans() {
            let same = after[span.range()] == before[span.range()];
            assert_eq!(same, span.spec.name == "embed.weight", "{choice:?}, {}", span.spec.name);
        }
        let folder = tempfile::tempdir().unwrap();
        let path = checkpoint::save(folder.path(), &mut replica, &at(3)).unwrap();
        let reader = checkpoint::Reader::open(&path).unwrap();
        let state = match choice.name.as_str() {
            "sgd" | "lars" => "velocity",
            "muon" | "lion" => "momentum",
            _ => "first_moment",
        };
        let mut values = vec![f32::NAN; layout().len()];
        reader.read(checkpoint::Set::Optimizer, &format!("{state}/"), &layout(), 0, &mut values).unwrap();
        let frozen = layout().span(SpanId(0)).range();
        assert!(values[frozen].iter().all(|value| *value == 0.0), "{choice:?}: nor does its state move");
    }
}

#[test]
fn a_checkpoint_and_other_ranks_continue_in_the_same_bits() {
    for (choice, of_block) in choices() {
        let config = Config { elastic: true, ..config(groups(&of_block), 0.0625) };
        let mut whole = replica(Group::alone(), &config, &choice);
        train(&mut whole, 6);
        let expected = bits(&mut whole);

        let folder = tempfile::tempdir().unwrap();
        let saved = threads::spawn(3, |group| {
            let mut replica = replica(group, &config, &choice);
            train(&mut replica, 3);
            let first = replica.group().rank() == Rank(0);
            let path = first.then(|| checkpoint::save(folder.path(), &mut replica, &at(3)).unwrap());
            // The others are gone; it continues alone.
            replica.regroup(Arc::new(Group::alone())).unwrap();
            train(&mut replica, 6);
            assert!(bits(&mut replica) == expected, "{choice:?}, alone");
            path
        });
        let path = saved.unwrap().remove(0).unwrap();
        for resumed in threads::spawn(2, |group| {
            let mut replica = replica(group, &config, &choice);
            checkpoint::load(&path, &mut replica).unwrap();
            train(&mut replica, 6);
            bits(&mut replica)
        })
        .unwrap()
        {
            assert!(resumed == expected, "{choice:?}, resumed");
        }
    }
}
