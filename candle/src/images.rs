//! Batches of images as tensors, and the usual loss and scores of a classifier.

use candle_core::{D, Device, Error, Result, Tensor};
use candle_nn::ops::log_softmax;
use kolo_data::Batch;
use kolo_ddp::key::Key;
use kolo_train::{Classification, Mean, Pass, best_class};

use crate::Loss;

/// Returns images `[batch, channels, height, width]` and labels `[batch]`; the batch may be empty.
///
/// # Errors
///
/// None, for a batch of a data set.
pub fn image_tensors(batch: &Batch) -> Result<(Tensor, Tensor)> {
    let images = Tensor::from_slice(&batch.images, &batch.shape[..], &Device::Cpu)?;
    Ok((images, Tensor::from_slice(&batch.labels, batch.shape[0], &Device::Cpu)?))
}

/// Returns the cross entropy of a classifier's scores `[samples, classes]`, before softmax, with labels
/// `[samples]`: with the recipe's label smoothing (Szegedy et al. 2016, arXiv:1512.00567, section 7), and
/// with mixed labels where images are mixed.
///
/// # Errors
///
/// The shapes do not fit, or a label is no class.
pub fn cross_entropy(scores: &Tensor, labels: &Tensor, pass: &Pass<'_>) -> Result<Loss> {
    let logs = log_softmax(scores, D::Minus1)?;
    let share = pass.recipe.large_batch.label_smoothing;
    let by = |labels: &Tensor| -> Result<Tensor> {
        let own = logs.gather(&labels.unsqueeze(1)?, 1)?.sum_all()?.neg()?;
        if share == 0.0 {
            return Ok(own);
        }
        let all = (logs.sum_all()?.neg()? * (share / logs.dim(1)? as f64))?;
        (own * (1.0 - share))? + all
    };
    let count = labels.dim(0)?;
    let Some(mixing) = pass.mixing else { return Loss::sum(by(labels)?, count) };
    let partners: Vec<u32> = mixing.partners.iter().map(|partner| *partner as u32).collect();
    let others = labels.index_select(&Tensor::from_vec(partners, count, labels.device())?, 0)?;
    let own = mixing.own_share;
    Loss::sum(((by(labels)? * own)? + (by(&others)? * (1.0 - own))?)?, count)
}

/// Returns the counts of samples by label and predicted class, and the most wrong samples, for
/// `Trainer::tally`. Shapes as in [`cross_entropy`].
///
/// # Errors
///
/// The tensors have other types or shapes.
pub fn classification(scores: &Tensor, labels: &Tensor) -> Result<Classification> {
    let (samples, _) = scores.dims2()?;
    let labels: Vec<u32> = labels.to_vec1()?;
    if labels.len() != samples {
        return Err(Error::Msg(format!("there are {samples} rows of scores and {} labels", labels.len())));
    }
    Ok(Classification::of(&scores.flatten_all()?.to_vec1::<f32>()?, &labels))
}

/// Returns the share of samples with their highest score at their label, for `Metric::ACCURACY`. Shapes as in
/// [`cross_entropy`].
///
/// # Errors
///
/// The tensors have other types or shapes.
pub fn accuracy(scores: &Tensor, labels: &Tensor) -> Result<Mean> {
    let (rows, labels) = (scores.to_vec2::<f32>()?, labels.to_vec1::<u32>()?);
    let right = rows.iter().zip(&labels).filter(|(row, label)| best_class(row) == Some(**label)).count();
    Ok(Mean::share(right, labels.len()))
}

/// Returns the key of a pass's masks, to which a layer adds its number: `dropout_key(pass).with(1)`.
pub fn dropout_key(pass: &Pass<'_>) -> Key {
    let &Pass { recipe, epoch, step, shard, .. } = pass;
    Key::new(recipe.seed).with_str("dropout").with(epoch as u64).with(step as u64).with(shard as u64)
}
