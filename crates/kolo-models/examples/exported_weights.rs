//! Weights from `kolo export --format burn`, in a program that uses Burn alone. It loads them into a new
//! network and writes the scores of all test images to a file, `f32`, little-endian, image by image.
//!
//! `cargo run -p kolo-models --example exported_weights -- model.bpk fashion-mnist-small scores`

use std::fs::File;
use std::io::Write;

use burn::module::Module;
use burn::store::ModuleRecord;
use burn::tensor::Device;
use burn_flex_nn::arrange;
use kolo_burn_train::image_tensors;
use kolo_data::Part;
use kolo_models::ResNetConfig;
use kolo_weights::Description;

/// Images in a forward pass.
const BATCH: usize = 250;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, data, out] = arguments.as_slice() else { return Err("arguments: FILE DATA OUT".into()) };

    // The export's description of the weights.
    let description: Description = serde_json::from_reader(File::open(format!("{file}.json"))?)?;
    let images = description.preprocessing.ok_or("the export does not say how images come to the model")?;
    let network = match description.model.as_str() {
        "small" => ResNetConfig::small,
        "resnet18" => ResNetConfig::resnet18,
        "resnet34" => ResNetConfig::resnet34,
        "resnet50" => ResNetConfig::resnet50,
        other => return Err(format!("this program knows no model `{other}`").into()),
    };

    let device = Device::flex();
    let model = network(images.input_size[0], images.num_classes).init(0, &device);
    // Loading lays weights out row by row; `arrange` spares every convolution a copy.
    let model = arrange(model.try_load_record(ModuleRecord::load(file)?)?);

    let data = kolo_data::open(data)?;
    let indices: Vec<usize> = (0..data.samples(Part::Test)).collect();
    let mut out = File::create(out)?;
    for batch in indices.chunks(BATCH) {
        let (images, _) = image_tensors(data.batch(Part::Test, batch, None)?, &device);
        let scores = model.forward(images).into_data();
        let bytes: Vec<u8> = scores.iter::<f32>().flat_map(f32::to_le_bytes).collect();
        out.write_all(&bytes)?;
    }
    Ok(())
}
