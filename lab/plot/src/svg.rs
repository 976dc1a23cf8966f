// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A drawn chart as the text of an SVG file, and as pixels.

use std::fmt;
use std::sync::Arc;

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};

/// A drawn chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Svg(pub(crate) String);

/// A chart that cannot be drawn.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlotError {
    /// There is nothing to draw.
    #[error("nothing to draw: {0}")]
    Empty(&'static str),
    /// A sample is not finite, or a bar is below zero; the name of the line or group.
    #[error("'{0}' has a sample that is no finite number")]
    NotFinite(String),
    /// The PNG would be empty or too large; the requested scale.
    #[error("a scale of {0} gives no picture")]
    Scale(String),
    /// The drawing library refused.
    #[error("cannot draw: {0}")]
    Draw(String),
}

impl Svg {
    /// Returns the text of the SVG file.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Renders a PNG file, and returns its bytes. It has `scale` times as many pixels a side as the
    /// SVG says: 2 for a sharp screen.
    pub fn to_png(&self, scale: f32) -> Result<Vec<u8>, PlotError> {
        let mut fonts = fontdb::Database::new();
        // The font is part of the program: on a machine without one, text would silently be
        // missing.
        fonts.load_font_data(FONT.to_vec());
        fonts.set_sans_serif_family(FONT_FAMILY);
        let options = Options {
            fontdb: Arc::new(fonts),
            font_family: FONT_FAMILY.to_string(),
            ..Options::default()
        };
        let draw = |error: &dyn fmt::Display| PlotError::Draw(error.to_string());
        let tree = Tree::from_str(&self.0, &options).map_err(|error| draw(&error))?;
        let size = tree.size().to_int_size();
        let size = size
            .scale_by(scale)
            .filter(|size| u64::from(size.width()) * u64::from(size.height()) <= PIXELS_MAX);
        let pixmap = size.and_then(|size| Pixmap::new(size.width(), size.height()));
        let mut pixmap = pixmap.ok_or_else(|| PlotError::Scale(scale.to_string()))?;
        resvg::render(&tree, Transform::from_scale(scale, scale), &mut pixmap.as_mut());
        pixmap.encode_png().map_err(|error| draw(&error))
    }
}

pub(crate) const FONT_FAMILY: &str = "DejaVu Sans";

/// Latin, Greek and mathematics of DejaVu Sans, 27 kB; its licence lies beside it.
const FONT: &[u8] = include_bytes!("../font/DejaVuSans-subset.ttf");

/// The most pixels of a picture.
const PIXELS_MAX: u64 = 64_000_000;
