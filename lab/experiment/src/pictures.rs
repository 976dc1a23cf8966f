// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pictures as files.

use std::path::Path;

use weir_plot::Svg;

use crate::{ExperimentError, Result};

/// Writes a picture into `folder`, which is made if it is not there, as `NAME.svg` and as
/// `NAME.png`, the latter `scale` times as large.
pub fn save_picture(folder: &Path, name: &str, svg: &Svg, scale: f32) -> Result {
    std::fs::create_dir_all(folder).map_err(|error| ExperimentError::io(folder, error))?;
    save_file(&folder.join(format!("{name}.svg")), svg.as_str().as_bytes())?;
    save_file(&folder.join(format!("{name}.png")), &svg.to_png(scale)?)
}

/// Writes a file.
pub fn save_file(path: &Path, bytes: &[u8]) -> Result {
    std::fs::write(path, bytes).map_err(|error| ExperimentError::io(path, error))
}
