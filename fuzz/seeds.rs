//! Writes the seeds of all targets to `corpus/`. Run it when what is decoded has changed.

use std::path::Path;

fn main() -> std::io::Result<()> {
    for (target, name, bytes) in kolo_comm::fuzzing::seeds() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(name), bytes)?;
    }
    Ok(())
}
