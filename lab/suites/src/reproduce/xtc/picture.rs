// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pictures of sets of points.

use weir_experiment::prelude::*;
use weir_plot::{PointSet, Points, Svg};

/// Draws sets of points over axes of that name and unit; none where nothing was measured. Rates
/// over rates have a diagonal beside them.
pub(super) fn points(
    title: String,
    [x, y]: [(&str, &str); 2],
    sets: impl IntoIterator<Item = PointSet>,
) -> Result<Option<Svg>, ExperimentError> {
    let sets: Vec<PointSet> = sets.into_iter().filter(|set| !set.points.is_empty()).collect();
    if sets.is_empty() {
        return Ok(None);
    }
    let diagonal = x.1 == "packet/s" && y.1 == "packet/s";
    let [x, y] = [x, y].map(|(name, unit)| (name.to_owned(), unit.to_owned()));
    Ok(Some(Points { title, x, y, diagonal, sets }.draw()?))
}
