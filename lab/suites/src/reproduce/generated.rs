// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The generated pages of all texts: their files, their headings, the line about a run.

use std::path::{Path, PathBuf};

use weir_experiment::pictures::save_file;
use weir_experiment::prelude::*;
use weir_plot::Svg;
use weir_result::Origin;

/// The files of a text's page, below the project's folder.
pub(super) struct PageFiles {
    page: PathBuf,
    pictures: PathBuf,
}

impl PageFiles {
    /// Makes the folders of the page of `text` and of its pictures, below `root`.
    pub(super) fn make(root: &Path, text: &str) -> Result<Self> {
        let (pages, pictures) = (root.join("docs/reproduced"), root.join("docs/img").join(text));
        for folder in [&pages, &pictures] {
            std::fs::create_dir_all(folder).map_err(|error| ExperimentError::io(folder, error))?;
        }
        Ok(Self { page: pages.join(format!("{text}.md")), pictures })
    }

    /// Writes a picture of the page.
    pub(super) fn save_picture(&self, name: &str, svg: &Svg) -> Result {
        save_file(&self.pictures.join(format!("{name}.svg")), svg.as_str().as_bytes())
    }

    /// Writes the page, and returns its path.
    pub(super) fn save_page(self, text: &str) -> Result<PathBuf> {
        save_file(&self.page, text.as_bytes())?;
        Ok(self.page)
    }
}

/// Returns the error of a page without the results that it needs.
pub(super) fn no_results(needs: &str) -> ExperimentError {
    ExperimentError::Missing { what: "a report".to_owned(), needs: needs.to_owned() }
}

/// Returns the heading of a figure or table of a text by its name: `fig5` is Figure 5. `None` of
/// another name.
pub(super) fn heading(name: &str) -> Option<String> {
    let figure = name.strip_prefix("fig").map(|number| format!("Figure {number}"));
    figure.or_else(|| name.strip_prefix("table").map(|number| format!("Table {number}")))
}

/// Returns the command of a run and its day.
pub(super) fn command_and_day(origin: &Origin) -> String {
    let (day, _) = origin.start.split_once('T').unwrap_or_default();
    format!("`{}` on {day}", origin.command)
}

/// Returns the machine of a run and its kernel.
pub(super) fn machine(origin: &Origin) -> String {
    format!("{} cores of {}, {}", origin.machine.cores, origin.machine.cpu, origin.kernel)
}

/// Returns the commit of a run.
pub(super) fn commit(origin: &Origin) -> String {
    format!("commit {}", origin.commit.chars().take(12).collect::<String>())
}

#[cfg(test)]
mod tests {
    use weir_result::Machine;

    use super::*;

    #[test]
    fn a_run_is_told_by_command_day_machine_and_commit() {
        let machine_of = Machine { cpu: "Xeon".to_owned(), cores: 2, ..Machine::default() };
        let origin = Origin {
            command: "weir-lab reproduce iip all".to_owned(),
            machine: machine_of,
            kernel: "Linux 6.18".to_owned(),
            commit: "0123456789abcdef".to_owned(),
            start: "2026-11-25T10:00:00Z".to_owned(),
        };
        assert_eq!(command_and_day(&origin), "`weir-lab reproduce iip all` on 2026-11-25");
        assert_eq!(machine(&origin), "2 cores of Xeon, Linux 6.18");
        assert_eq!(commit(&origin), "commit 0123456789ab");
    }

    #[test]
    fn figures_and_tables_have_headings() {
        assert_eq!(heading("fig12").as_deref(), Some("Figure 12"));
        assert_eq!(heading("table1").as_deref(), Some("Table 1"));
        assert_eq!(heading("phases"), None);
    }
}
