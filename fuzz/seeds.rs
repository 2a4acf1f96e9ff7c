//! Writes the seeds of all targets to `corpus/`. Run it when what is decoded has changed.

use std::path::Path;

fn main() -> std::io::Result<()> {
    let seeds = [
        kolo_checkpoint::fuzzing::seeds(),
        kolo_claim::fuzzing::seeds(),
        kolo_transport::fuzzing::seeds(),
        kolo_data::fuzzing::seeds(),
        kolo_elastic::fuzzing::seeds(),
        kolo_rendezvous::fuzzing::seeds(),
    ];
    for (target, name, bytes) in seeds.concat() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(name), bytes)?;
    }
    Ok(())
}
