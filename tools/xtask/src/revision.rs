// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The commit that is checked out, as results name it.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::command::output;

/// Returns the commit that is checked out at `top`, with `-dirty` if the tree differs from it. The
/// kept lines, the page of figures and the README may differ: they change while benches run.
pub(crate) fn commit(top: &Path) -> Result<String, String> {
    let git = |arguments: &[&str]| output(Command::new("git").current_dir(top).args(arguments));
    let head = git(&["rev-parse", "HEAD"])?;
    let but = [LINES, PAGE, README].map(|path| format!(":(exclude){path}"));
    let status =
        ["status", "--porcelain", "--untracked-files=no", "--", ".", &but[0], &but[1], &but[2]];
    let dirty = !git(&status)?.is_empty();
    Ok(format!("{}{}", head.trim(), if dirty { "-dirty" } else { "" }))
}

/// The time in UTC as RFC 3339 writes it.
pub(crate) fn now() -> Result<String, String> {
    let mut date = Command::new("date");
    date.args(["--utc", "+%Y-%m-%dT%H:%M:%SZ"]).stdin(Stdio::null());
    Ok(output(&mut date)?.trim().to_string())
}

/// The runs that were kept, the page that follows from them, and the README with its table.
pub(crate) const LINES: &str = "docs/performance.jsonl";
pub(crate) const PAGE: &str = "docs/performance.md";
pub(crate) const README: &str = "README.md";
