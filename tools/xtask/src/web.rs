// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The pages of node and broker: built by Vite into `web/dist` and `web/dist-broker`, which are
//! checked in, so that `cargo build` needs no Node; a check builds them again and compares byte for
//! byte.

use std::path::Path;
use std::process::Command;

use crate::command::{output, run};

/// Renews the pages' types from the OpenAPI documents, checks and tests the pages, and builds them.
pub(crate) fn renew() -> Result<(), String> {
    install()?;
    npm(&["run", "types"])?;
    prove()?;
    PAGES.iter().try_for_each(|(script, _)| npm(&["run", script]))
}

/// Builds the pages and compares them with what is checked in. `Some` says why it was not tried.
pub(crate) fn check() -> Result<Option<String>, String> {
    if output(Command::new("npm").arg("--version")).is_err() {
        return Ok(Some("no npm on this machine".to_owned()));
    }
    let Ok(version) = output(Command::new("node").arg("--version")) else {
        return Ok(Some("no node on this machine".to_owned()));
    };
    if !is_enough(&version) {
        return Ok(Some(format!("node {} is older than 18.19", version.trim())));
    }
    install()?;
    prove()?;
    PAGES.iter().try_for_each(|(script, stored)| {
        let folder = std::env::temp_dir().join(format!("weir-page-{}", std::process::id()));
        let made = folder.to_string_lossy().into_owned();
        let built = npm(&["run", script, "--", "--emptyOutDir", "--outDir", &made]);
        let same = built.and_then(|()| same(Path::new(stored), &folder));
        // A failure to remove it is harmless: the folder is among temporary files.
        let _removed = std::fs::remove_dir_all(&folder);
        same
    })?;
    Ok(None)
}

/// Returns true if a version such as `v20.1.2` can build the page.
fn is_enough(version: &str) -> bool {
    let mut parts = version.trim().trim_start_matches('v').split('.').map(str::parse::<u32>);
    let [major, minor] = [parts.next(), parts.next()].map(|part| part.and_then(Result::ok));
    (major, minor) >= (Some(18), Some(19))
}

/// Installs the packages that the lock file names, unless they are there.
fn install() -> Result<(), String> {
    let time = |path: &str| std::fs::metadata(path).and_then(|file| file.modified()).ok();
    if time(INSTALLED).is_none_or(|installed| Some(installed) < time(LOCK)) {
        npm(&["ci", "--no-audit", "--no-fund"])?;
    }
    Ok(())
}

/// Checks types and runs the page's tests; one of them compares the types with the document.
fn prove() -> Result<(), String> {
    npm(&["run", "check"])?;
    npm(&["test"])
}

fn npm(arguments: &[&str]) -> Result<(), String> {
    run(Command::new("npm").args(arguments).current_dir("web"))
}

/// Checks that both folders have the same files, byte for byte.
fn same(stored: &Path, made: &Path) -> Result<(), String> {
    let names = |folder: &Path| {
        let entries =
            std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
        names.sort();
        Ok::<_, String>(names)
    };
    let (kept, built) = (names(stored)?, names(made)?);
    if kept != built {
        return Err(format!(
            "{}: has {kept:?}, a build makes {built:?}; {RENEW}",
            stored.display()
        ));
    }
    for name in kept {
        let read = |folder: &Path| std::fs::read(folder.join(&name)).map_err(|e| e.to_string());
        if read(stored)? != read(made)? {
            let file = stored.join(&name);
            return Err(format!("{}: is not what a build makes; {RENEW}", file.display()));
        }
    }
    Ok(())
}

/// The script that builds each page, and the folder in which the page is checked in.
const PAGES: [(&str, &str); 2] = [("build", "web/dist"), ("build:broker", "web/dist-broker")];

const LOCK: &str = "web/package-lock.json";
/// The file that npm writes when all packages are installed.
const INSTALLED: &str = "web/node_modules/.package-lock.json";
const RENEW: &str = "`cargo xtask web` renews it";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_node_is_not_tried() {
        assert!(["v18.19.0", "v18.20.1\n", "v20.0.0", "22.1"].iter().all(|v| is_enough(v)));
        assert!(!["v12.22.9", "v18.18.2", "", "node"].iter().any(|v| is_enough(v)));
    }

    #[test]
    fn a_byte_or_a_file_more_is_seen() {
        let top = std::env::temp_dir().join(format!("weir-t-web-{}", std::process::id()));
        let [one, other] = ["one", "other"].map(|name| top.join(name));
        for folder in [&one, &other] {
            std::fs::create_dir_all(folder).unwrap();
            std::fs::write(folder.join("page.js"), "a").unwrap();
        }
        assert_eq!(same(&one, &other), Ok(()));
        std::fs::write(other.join("page.js"), "b").unwrap();
        assert!(same(&one, &other).unwrap_err().contains("page.js: is not what a build makes"));
        std::fs::write(one.join("page.js"), "b").unwrap();
        std::fs::write(one.join("old.js"), "").unwrap();
        assert!(same(&one, &other).unwrap_err().contains("old.js"));
        std::fs::remove_dir_all(top).unwrap();
    }
}
