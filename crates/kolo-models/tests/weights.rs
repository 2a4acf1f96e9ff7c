//! Weights leave a run and come back with all their bits; unusable ones give an error.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::module::Module;
use burn::store::ModuleRecord;
use burn::tensor::{Device, Tensor};
use kolo_burn::Ddp;
use kolo_burn_train::{Job, Membership, image_tensors};
use kolo_comm::Group;
use kolo_data::{Augment, DataSet, ImageSet, Images, Part};
use kolo_ddp::checkpoint;
use kolo_ddp::optimizer::{self, Settings};
use kolo_models::{self as models, ResNet, ResNetConfig, Stem};
use kolo_recipe::{Error, Recipe, RunFolder};
use kolo_weights::{self as weights, Description, WeightsError, Which, torchvision_name};
use safetensors::SafeTensors;
use safetensors::tensor::Dtype;

const STEPS: u64 = 2;
const CLASSES: usize = 5;

fn data() -> ImageSet {
    let images = |count: usize| Images {
        channels: 1,
        height: 12,
        width: 14,
        pixels: (0..count * 12 * 14).map(|i| ((i * 2_654_435_761) >> 7) as u8).collect(),
        labels: (0..count).map(|i| (i % CLASSES) as u32).collect(),
    };
    ImageSet::spread([images(24), images(6)], [3, 16], CLASSES, Augment::default()).unwrap()
}

fn trained(folder: &Path, model: &str, init: Option<PathBuf>) -> RunFolder {
    let config = Recipe {
        model: model.into(),
        data: "noise:/some/folder".into(),
        init,
        steps: Some(STEPS),
        checkpoint_steps: Some(1),
        best_metric: Some("accuracy".into()),
        batch_size: 4,
        ..Recipe::default()
    };
    let path = folder.join(format!("{model}-{}", config.init.is_some()));
    let run = RunFolder::create(path, &config).unwrap();
    let job = Job { folder: Some(run.clone()), ..Job::new(config) };
    models::find(model).unwrap().train(job, Arc::new(data()), Membership::Fixed(Group::alone())).unwrap();
    run
}

fn export(run: &RunFolder, which: Which, format: &str, name: &str) -> Result<PathBuf, WeightsError> {
    let out = run.path().with_file_name(name);
    weights::export(run, which, weights::find(format)?, &out).map(|_| out)
}

/// Loads the network from a checkpoint directly, not by the tested functions.
fn from_checkpoint(run: &RunFolder, config: ResNetConfig, step: u64) -> ResNet {
    let model = config.init(0, &Device::flex().autodiff());
    let sgd = optimizer::named("sgd", &Settings::default().with("momentum", 0.9)).unwrap();
    let mut ddp = Ddp::new(Group::alone(), model, &kolo_ddp::Config::default(), sgd).unwrap();
    ddp.load(&checkpoint::path(&run.path().join("checkpoints"), step)).unwrap();
    ddp.model().valid()
}

fn scores(model: &ResNet) -> Vec<u32> {
    let batch = data().batch(Part::Test, &[0, 1, 2, 3, 4, 5], None).unwrap();
    let scores: Tensor<2> = model.forward(image_tensors(batch, &Device::flex()).0);
    scores.into_data().iter::<f32>().map(f32::to_bits).collect()
}

#[test]
fn burn_alone_loads_what_is_exported_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let run = trained(folder.path(), "small", None);
    let config = ResNetConfig::small(3, CLASSES);
    let newest = scores(&from_checkpoint(&run, config, STEPS));
    let first = scores(&from_checkpoint(&run, config, 1));
    // The only evaluation, at the end, is the best one.
    for (which, expected) in
        [(Which::Newest, newest.clone()), (Which::Step(1), first), (Which::Best, newest.clone())]
    {
        let out = export(&run, which, "burn", &format!("{which:?}.bpk")).unwrap();
        let fresh = config.init(99, &Device::flex());
        assert_ne!(scores(&fresh), expected);
        let loaded = fresh.try_load_record(ModuleRecord::load(&out).unwrap()).unwrap();
        assert_eq!(scores(&loaded), expected, "{which:?}");
        // Kolo itself reads it, too.
        assert_eq!(scores(&weights::load(config.init(99, &Device::flex()), &out).unwrap()), expected);
    }

    // The description has the preprocessing of images.
    let text = std::fs::read_to_string(folder.path().join("Newest.bpk.json")).unwrap();
    let description: Description = serde_json::from_str(&text).unwrap();
    assert_eq!((description.model.as_str(), description.data.as_str()), ("small", "noise"));
    assert_eq!((description.step, description.preprocessing), (STEPS, data().preprocessing()));

    // A run that begins with these weights ends with others than one that does not, and its configuration
    // names the file.
    let again = trained(folder.path(), "small", Some(folder.path().join("Newest.bpk")));
    assert_ne!(scores(&from_checkpoint(&again, config, STEPS)), newest);
    assert_eq!(again.config().unwrap().init, Some(folder.path().join("Newest.bpk")));
}

#[test]
fn torchvisions_names_and_shapes_hold_the_same_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let run = trained(folder.path(), "resnet18", None);
    let out = export(&run, Which::Newest, "torchvision", "a.safetensors").unwrap();
    let (data, burn) = (std::fs::read(&out).unwrap(), export(&run, Which::Newest, "burn", "a.bpk").unwrap());
    let tensors = SafeTensors::deserialize(&data).unwrap();

    // 20 batch norms with a count each, besides the model's own.
    let counts = tensors.iter().filter(|(name, _)| name.ends_with("num_batches_tracked"));
    let count = |view: &safetensors::tensor::TensorView<'_>| {
        assert_eq!((view.dtype(), view.shape()), (Dtype::I64, [].as_slice()));
        i64::from_le_bytes(view.data().try_into().unwrap())
    };
    assert_eq!(counts.map(|(_, view)| count(&view)).collect::<Vec<_>>(), [STEPS as i64; 20]);
    assert_eq!(tensors.len(), 122);
    assert_eq!(tensors.tensor("fc.weight").unwrap().shape(), [CLASSES, 512]);
    let (_, metadata) = SafeTensors::read_metadata(&data).unwrap();
    let text = std::fs::read_to_string(folder.path().join("a.safetensors.json")).unwrap();
    assert_eq!(metadata.metadata().as_ref().unwrap()["kolo"], text);

    let config = ResNetConfig::resnet18(3, CLASSES);
    let model = from_checkpoint(&run, config, STEPS);
    let weight: Vec<f32> = model.fc.weight.val().transpose().into_data().iter().collect();
    let stored = tensors.tensor(&torchvision_name("fc.weight").name).unwrap();
    let words = stored.data().chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().unwrap()));
    assert!(words.eq(weight));

    // Both formats lead back to the same bits, and the same export to the same bytes.
    let (fresh, expected) = (config.init(99, &Device::flex()), scores(&model));
    for file in [&out, &burn] {
        let loaded = weights::load(fresh.clone(), file).unwrap();
        assert_eq!(scores(&loaded), expected, "{}", file.display());
    }
    let again = export(&run, Which::Newest, "torchvision", "b.safetensors").unwrap();
    assert!(std::fs::read(again).unwrap() == data);

    // The error names the first tensor of another network.
    let refusal =
        |config: ResNetConfig, file: &Path| match weights::load(config.init(0, &Device::flex()), file) {
            Err(error) => error,
            other => panic!("{other:?}"),
        };
    let other_classes = refusal(ResNetConfig::resnet18(3, 7), &out);
    assert!(
        matches!(&other_classes, WeightsError::Shape { tensor, found, needed, .. }
            if tensor == "fc.weight" && *found == [CLASSES, 512] && *needed == [7, 512]),
        "{other_classes}"
    );
    let larger = refusal(ResNetConfig::resnet34(3, CLASSES), &burn);
    assert!(
        matches!(&larger, WeightsError::Missing { tensor, .. } if tensor == "layer1.2.conv1.weight"),
        "{larger}"
    );
    let shallower = ResNetConfig { depths: [2, 2, 2, 1], ..config };
    let left = refusal(shallower, &out);
    assert!(
        matches!(&left, WeightsError::Unknown { tensor, .. } if tensor.starts_with("layer4.1.")),
        "{left}"
    );
}

#[test]
fn another_stem_is_no_model_of_torchvisions() {
    let folder = tempfile::tempdir().unwrap();
    let config = Recipe { model: "resnet18".into(), stem: Some(Stem::Small), ..Recipe::default() };
    let run = RunFolder::create(folder.path().join("run"), &config).unwrap();
    let error = export(&run, Which::Newest, "torchvision", "a.safetensors").unwrap_err();
    assert!(
        matches!(&error, WeightsError::OtherStem { model } if model == "resnet18")
            && error.to_string().contains("--stem small")
            && error.to_string().contains("--format burn"),
        "{error}"
    );
    // Burn's format is for any model: here the run has no checkpoint yet.
    let error = export(&run, Which::Newest, "burn", "a.bpk").unwrap_err();
    assert!(matches!(error, WeightsError::Recipe(Error::NoCheckpoint { .. })), "{error}");
}

#[test]
fn halves_and_other_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("half.safetensors");
    let half = safetensors::tensor::TensorView::new(Dtype::F16, vec![1], &[0, 0]).unwrap();
    std::fs::write(&path, safetensors::serialize([("conv1.weight", half)], None).unwrap()).unwrap();
    let load = |path: &Path| {
        weights::load(ResNetConfig::small(1, 2).init(0, &Device::flex()), path).unwrap_err().to_string()
    };
    let error = load(&path);
    assert!(error.contains("half.safetensors holds `conv1.weight` as F16"), "{error}");
    let path = folder.path().join("text");
    for text in ["", "some text that is long enough"] {
        std::fs::write(&path, text).unwrap();
        let error = load(&path);
        assert!(
            error.contains("text is not a file of weights") && error.contains("torchvision, burn"),
            "{error}"
        );
    }
}

/// Files in place of an export are accepted if their meaning is clear, else refused with a remedy.
#[test]
fn checkpoints_and_wrapped_names_are_weights_and_other_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let run = trained(folder.path(), "small", None);
    let config = ResNetConfig::small(3, CLASSES);
    let expected = scores(&from_checkpoint(&run, config, STEPS));
    let load = |path: &Path| weights::load(config.init(99, &Device::flex()), path);
    let checkpoint = checkpoint::path(&run.path().join("checkpoints"), STEPS);
    let moved = folder.path().join("moved.safetensors");
    std::fs::copy(checkpoint.join("weights.safetensors"), &moved).unwrap();

    // In the form of PyTorch's wrappers.
    let torch = export(&run, Which::Newest, "burn", "a.bpk").unwrap();
    assert_eq!(scores(&load(&torch).unwrap()), expected);
    let data = std::fs::read(&moved).unwrap();
    let tensors = SafeTensors::deserialize(&data).unwrap();
    let wrapped = |prefix: &str| {
        let path = folder.path().join(format!("{prefix}safetensors"));
        let views = tensors.iter().map(|(name, view)| (format!("{prefix}{name}"), view));
        std::fs::write(&path, safetensors::serialize(views, None).unwrap()).unwrap();
        path
    };
    for path in [
        checkpoint.clone(),
        checkpoint.join("weights.safetensors"),
        moved.clone(),
        wrapped("module."),
        wrapped("_orig_mod.module."),
    ] {
        assert_eq!(scores(&load(&path).unwrap()), expected, "{}", path.display());
    }

    // Values with which no network computes, in tensors that a run may freeze.
    for (tensor, value, shown) in [
        ("conv1.weight", f32::NAN, "the value NaN in `conv1.weight`; give weights"),
        ("bn1.running_mean", f32::NEG_INFINITY, "the value -inf in `bn1.running_mean`; give weights"),
        ("bn1.running_var", -0.5, "the value -0.5 in `bn1.running_var`, a variance; give weights"),
    ] {
        let path = folder.path().join("value.safetensors");
        let changed = tensors.iter().map(|(name, view)| {
            let mut data = view.data().to_vec();
            if name == tensor {
                data[4..8].copy_from_slice(&value.to_le_bytes());
            }
            (name.to_owned(), view.shape().to_vec(), data)
        });
        let changed: Vec<_> = changed.collect();
        let views = changed.iter().map(|(name, shape, data)| {
            (name, safetensors::tensor::TensorView::new(Dtype::F32, shape.clone(), data).unwrap())
        });
        std::fs::write(&path, safetensors::serialize(views, None).unwrap()).unwrap();
        let error = load(&path).unwrap_err();
        assert!(error.is_input() && error.to_string().contains(shown), "{error}");
        assert!(error.to_string().starts_with(&path.display().to_string()), "{error}");
    }

    let pointer = folder.path().join("pointer.safetensors");
    std::fs::write(&pointer, "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n")
        .unwrap();
    for (path, words) in [
        (pointer, "git lfs pull"),
        (checkpoint.join("optimizer.safetensors"), "its weights are in weights.safetensors beside it"),
        (folder.path().join("nowhere"), "nowhere: No such file"),
        (run.path().to_owned(), "is a folder; give the file that `kolo export` has written"),
    ] {
        let error = load(&path).unwrap_err();
        assert!(error.is_input() && error.to_string().contains(words), "{error}");
    }
    // A part of the run folder in place of the run.
    for part in [run.path().join("checkpoints"), checkpoint.clone(), checkpoint.join("weights.safetensors")] {
        let error = RunFolder::at(part).config().unwrap_err();
        let words = error.to_string();
        assert!(
            matches!(error, Error::WithinRun { .. }) && words.contains(&run.path().display().to_string()),
            "{words}"
        );
    }
}

/// Weights of a network for other classes: skipped tensors keep their fresh bits, all others have the file's.
#[test]
fn skipped_tensors_keep_their_fresh_values() {
    let folder = tempfile::tempdir().unwrap();
    let run = trained(folder.path(), "resnet18", None);
    let torchvision = export(&run, Which::Newest, "torchvision", "a.safetensors").unwrap();
    let burn = export(&run, Which::Newest, "burn", "a.bpk").unwrap();
    let source = from_checkpoint(&run, ResNetConfig::resnet18(3, CLASSES), STEPS);
    let bits = |tensor: Tensor<2>| tensor.into_data().iter::<f32>().map(f32::to_bits).collect::<Vec<_>>();
    let kernel = |model: &ResNet| bits(model.conv1.weight.val().flatten(1, 3));
    // Its initial values take seconds here, and clones share them.
    let network = ResNetConfig::resnet18(3, 7).init(99, &Device::flex());
    let fresh = || network.clone();
    for file in [&torchvision, &burn] {
        let refusal = weights::load(fresh(), file).unwrap_err().to_string();
        assert!(
            refusal.contains("`fc.weight`") && refusal.ends_with("or with --init-skip 'fc.*'"),
            "{refusal}"
        );
        let loaded = weights::load_except(fresh(), file, &["fc.*".into()]).unwrap();
        assert_eq!(bits(loaded.fc.weight.val()), bits(fresh().fc.weight.val()));
        assert_eq!(kernel(&loaded), kernel(&source));
        assert_ne!(kernel(&loaded), kernel(&fresh()));
        for (skip, words) in [
            (
                "fx.*",
                "--init-skip fx.*: this selects no tensor of the model; its tensors have names like fc.",
            ),
            ("*", "--init-skip: this leaves nothing to load"),
            ("fc.bias", "holds `fc.weight` as"),
        ] {
            let error = weights::load_except(fresh(), file, &[skip.into()]).unwrap_err();
            assert!(error.is_input() && error.to_string().contains(words), "{skip}: {error}");
        }
    }
}
