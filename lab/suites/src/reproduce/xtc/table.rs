// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables of a page, as Markdown.

/// A table under construction.
pub(super) struct PageTable(String);

impl PageTable {
    /// Begins a table with these columns, the first `left` of which are aligned to the left.
    pub(super) fn new(left: usize, columns: impl IntoIterator<Item = String>) -> Self {
        let columns: Vec<String> = columns.into_iter().collect();
        let aligned: Vec<&str> =
            (0..columns.len()).map(|at| if at < left { "---" } else { "---:" }).collect();
        let mut table = Self(String::new());
        table.row(columns);
        table.0 += &format!("|{}|\n", aligned.join("|"));
        table
    }

    /// Adds a row. An empty cell is one space.
    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.0.push('|');
        for cell in cells {
            let space = if cell.is_empty() { "" } else { " " };
            self.0 += &format!("{space}{cell} |");
        }
        self.0.push('\n');
    }

    /// Returns the table, with a paragraph about its cells.
    pub(super) fn explained(self, cells: &str) -> String {
        format!("{}\n{}\n\n", self.0, cells)
    }

    /// Returns the table.
    pub(super) fn text(self) -> String {
        self.0
    }
}

/// Returns the cell of a value that was measured, or of one that was not.
pub(super) fn cell<T>(value: Option<T>, text: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "–".to_owned(), text)
}

/// Returns a rate in thousand packets a second.
pub(super) fn kpps(rate: f64) -> String {
    format!("{:.2} kp/s", rate / 1e3)
}
