//! Window that slides over an image.

use burn::nn::PaddingConfig2d;

use super::axis::Axis;

/// Settings that convolutions and pooling layers share; height first.
pub(crate) struct Window<'a> {
    pub(crate) kernel: [usize; 2],
    pub(crate) stride: [usize; 2],
    pub(crate) dilation: [usize; 2],
    pub(crate) padding: &'a PaddingConfig2d,
}

/// Returns height and width of a window over an image of this size, or `None` if it does not fit once.
pub(crate) fn padded_axes(window: &Window<'_>, size: [usize; 2]) -> Option<[Axis; 2]> {
    let axis = |index: usize| {
        let (input, kernel, stride, dilation) =
            (size[index], window.kernel[index], window.stride[index], window.dilation[index]);
        let covered = dilation * kernel.checked_sub(1)? + 1;
        let [padding, after] = match window.padding {
            PaddingConfig2d::Valid => [0, 0],
            PaddingConfig2d::Same => {
                let needed =
                    (input.div_ceil(stride).saturating_sub(1) * stride + kernel).saturating_sub(input);
                [needed / 2, needed - needed / 2]
            }
            PaddingConfig2d::Explicit(top, left, bottom, right) => [[*top, *bottom], [*left, *right]][index],
        };
        let output = (input + padding + after).checked_sub(covered)? / stride + 1;
        (input > 0).then_some(Axis { input, output, kernel, stride, padding, dilation })
    };
    Some([axis(0)?, axis(1)?])
}
