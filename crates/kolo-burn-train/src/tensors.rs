//! Batches as tensors.

use burn::tensor::{Device, Int, Tensor, TensorData};
use kolo_data::Batch;

/// Returns images `[batch, channels, height, width]` and labels `[batch]`; the batch may be empty.
///
/// ```
/// use burn::tensor::Device;
/// use kolo_burn_train::image_tensors;
/// use kolo_data::{Part, open};
///
/// let batch = open("fashion-mnist-small")?.batch(Part::Test, &[0, 1], None)?;
/// let (images, labels) = image_tensors(batch, &Device::flex());
/// assert_eq!((images.dims(), labels.dims()), ([2, 1, 28, 28], [2]));
/// # Ok::<(), kolo_data::DataError>(())
/// ```
pub fn image_tensors(batch: Batch, device: &Device) -> (Tensor<4>, Tensor<1, Int>) {
    // As PyTorch's, labels are signed; the last class is below 2³¹.
    let labels: Vec<i32> = batch.labels.into_iter().map(|label| label as i32).collect();
    let labels = TensorData::new(labels, [batch.shape[0]]);
    let images = TensorData::new(batch.images, batch.shape);
    (Tensor::from_data(images, device), Tensor::from_data(labels, device))
}

#[cfg(test)]
mod tests {
    use kolo_data::{Images, Normalize};

    use super::*;

    #[test]
    fn tensors_have_the_batches_shape_even_when_empty() {
        let device = Device::flex();
        let images = Images {
            channels: 2,
            height: 3,
            width: 4,
            pixels: (0..240).collect(),
            labels: (0..10).collect(),
        };
        let normalize = Normalize::new(&[0.0; 2], &[1.0 / 255.0; 2]);
        for indices in [vec![], vec![1, 3]] {
            let batch = images.batch(&indices, &normalize, None);
            assert_eq!((batch.len(), batch.is_empty()), (indices.len(), indices.is_empty()));
            let values = batch.images.clone();
            let (x, y) = image_tensors(batch, &device);
            assert_eq!((x.dims(), y.dims()), ([indices.len(), 2, 3, 4], [indices.len()]));
            assert_eq!(x.into_data().iter::<f32>().collect::<Vec<_>>(), values);
            assert_eq!(
                y.into_data().iter::<i64>().collect::<Vec<_>>(),
                indices.iter().map(|&i| i as i64).collect::<Vec<_>>()
            );
        }
    }
}
