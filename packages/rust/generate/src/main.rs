//! Makes `src/gen` of interlock-protos from `protos/`: `cargo run -p generate`. It is committed, so that whoever uses the
//! crate needs no Protocol Buffers compiler and builds nothing but it.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use prost::Message;

fn main() -> Result<(), Box<dyn Error>> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let protos = package.join("../../protos");
    let generated = package.join("src/gen");
    fs::remove_dir_all(&generated)?;
    fs::create_dir(&generated)?;

    let mut compiler = protox::Compiler::new([&protos])?;
    compiler.include_imports(true).open_files(files_of(&protos)?)?;

    // Without comments, for reflection and JSON.
    let mut descriptors = compiler.file_descriptor_set();
    fs::write(generated.join("descriptors.bin"), descriptors.encode_to_vec())?;

    compiler.include_source_info(true);
    descriptors = compiler.file_descriptor_set();
    let mut config = prost_build::Config::new();
    config
        .enable_type_names()
        .type_name_domain(["."], "type.googleapis.com")
        .btree_map(["."])
        // Parts of pictures and of patches: views of what came, instead of copies.
        .bytes([".interlock.preprocess.v1.ImageData.data", ".interlock.preprocess.v1.PatchChunk.data"]);
    tonic_prost_build::configure()
        .client_mod_attribute(".", "#[cfg(feature = \"client\")]")
        .server_mod_attribute(".", "#[cfg(feature = \"server\")]")
        .out_dir(&generated)
        .compile_fds_with_config(descriptors, config)?;
    Ok(())
}

/// Every `.proto` below a folder.
fn files_of(folder: &Path) -> Result<Vec<PathBuf>, std::io::Error> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(files_of(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "proto") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
