// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The browser that looks at pages, and what drives it: a script below `web/e2e`, by Node.js.

use std::path::Path;

/// Returns what a script misses to be run, with the way to get it; none if it can be run.
pub(crate) fn lacks(script: &str) -> Option<String> {
    let browser = std::env::var_os("CHROMIUM").unwrap_or_else(|| "/usr/bin/chromium".into());
    let needed = [
        (Path::new(script), "this is run at the top of the repository"),
        (Path::new("web/node_modules/playwright-core"), "`cargo xtask web` installs it"),
        (Path::new(&browser), "Debian's package chromium has it"),
    ];
    let (path, hint) = needed.into_iter().find(|(path, _)| !path.exists())?;
    Some(format!("{}: not there: {hint}", path.display()))
}
