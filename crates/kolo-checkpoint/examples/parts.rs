//! Three workers write a third of the weights each, and two others read a half each:
//!
//! ```text
//! cargo run -p kolo-checkpoint --example parts
//! ```

use std::error::Error;
use std::sync::Arc;

use kolo_checkpoint::{Part, Position, Reader, Set, Snapshot, newest};
use kolo_optim::{Element, Kind, Layout, ParamSpec};

const LEN: usize = 12;

fn main() -> Result<(), Box<dyn Error>> {
    let kind = Kind::Parameter { decay: true };
    let layout = Arc::new(Layout::new(vec![ParamSpec::new("weight", vec![3, 4], kind)]));
    let part = |rank: usize| Part {
        set: Set::Weights,
        file: format!("weights-{rank}.safetensors"),
        prefix: String::new(),
        start: rank * LEN / 3,
        values: Arc::new((rank * LEN / 3..(rank + 1) * LEN / 3).map(|element| element as f32).collect()),
    };
    let position = Position { step: 7, epoch: 0, step_in_epoch: 7, notes: "an example".into() };
    let folder = std::env::temp_dir().join(format!("kolo-parts-{}", std::process::id()));
    let path = Snapshot::new(layout.clone(), (0..3).map(part).collect(), &position)?.write(&folder)?;

    let found = newest(&folder)?.ok_or("it has just been written")?;
    assert_eq!((found.step, &found.path), (7, &path));
    let reader = Reader::open(&path)?;
    assert_eq!(reader.tensors(Set::Weights), [("weight", [3, 4].as_slice(), Element::F32)]);
    for half in 0..2 {
        let mut values = vec![0.0; LEN / 2];
        reader.read(Set::Weights, "", &layout, half * LEN / 2, &mut values)?;
        println!("half {half}: {values:?}");
    }
    for file in &reader.manifest().files {
        println!("{:24} {:4} bytes, SHA-256 {}", file.name, file.bytes, file.sha256);
    }
    Ok(std::fs::remove_dir_all(folder)?)
}
