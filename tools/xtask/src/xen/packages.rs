// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Debian's packages: fetched once, checked against the hashes of the signed lists, unpacked.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{output, run};

/// The folder of the unpacked files, inside the packages' folder.
pub(super) const TREE: &str = "tree";

/// A package as the lists have it.
#[derive(Debug, PartialEq, Eq)]
struct Package {
    name: String,
    sha256: String,
}

/// The folder in which packages are kept and unpacked.
pub(super) struct Packages {
    folder: PathBuf,
}

impl Packages {
    pub(super) fn in_folder(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// Fetches the packages `names` in the versions of the lists, unless they are there, and
    /// returns the folder into which they are unpacked. It is made anew if any of them has changed.
    ///
    /// # Errors
    /// The lists lack one of them, or it cannot be fetched or unpacked.
    pub(super) fn unpacked(&self, names: &[&str]) -> Result<PathBuf, String> {
        let tree = self.folder.join(TREE);
        let packages = self.listed(names)?;
        self.fetch(&packages)?;
        let stamp = self.folder.join("unpacked");
        let wanted: String = packages.iter().map(|package| package.file() + "\n").collect();
        if fs::read_to_string(&stamp).is_ok_and(|there| there == wanted) {
            return Ok(tree);
        }
        if tree.exists() {
            fs::remove_dir_all(&tree).map_err(|error| named(&tree, &error))?;
        }
        for package in &packages {
            let mut unpack = Command::new("dpkg-deb");
            run(unpack.arg("-x").arg(self.folder.join(package.file())).arg(&tree))?;
        }
        fs::write(&stamp, wanted).map_err(|error| named(&stamp, &error))?;
        Ok(tree)
    }

    fn listed(&self, names: &[&str]) -> Result<Vec<Package>, String> {
        let mut show = Command::new("apt-cache");
        let text = output(show.args(["show", "--no-all-versions"]).args(names))?;
        let packages = records(&text);
        for name in names {
            if !packages.iter().any(|package| package.name == *name) {
                return Err(format!("the lists of packages have no {name}"));
            }
        }
        Ok(packages)
    }

    /// Fetches missing packages, and refuses one whose hash is not that of the lists.
    fn fetch(&self, packages: &[Package]) -> Result<(), String> {
        let missing: Vec<&Package> =
            packages.iter().filter(|package| !self.has(package).unwrap_or(false)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let fresh = self.folder.join("new");
        let _none = fs::remove_dir_all(&fresh);
        fs::create_dir_all(&fresh).map_err(|error| named(&fresh, &error))?;
        let mut download = Command::new("apt-get");
        download.args(["-qq", "download"]).args(missing.iter().map(|package| &package.name));
        run(download.current_dir(&fresh))?;
        for entry in fs::read_dir(&fresh).map_err(|error| named(&fresh, &error))? {
            let path = entry.map_err(|error| named(&fresh, &error))?.path();
            let sha256 = sha256(&path)?;
            if let Some(package) = missing.iter().find(|package| package.sha256 == sha256) {
                let kept = self.folder.join(package.file());
                fs::rename(&path, &kept).map_err(|error| named(&kept, &error))?;
            }
        }
        for package in missing {
            if !self.has(package)? {
                let Package { name, sha256 } = package;
                return Err(format!("package {name}: what came has not the hash {sha256}"));
            }
        }
        fs::remove_dir_all(&fresh).map_err(|error| named(&fresh, &error))
    }

    fn has(&self, package: &Package) -> Result<bool, String> {
        let path = self.folder.join(package.file());
        Ok(path.exists() && sha256(&path)? == package.sha256)
    }
}

impl Package {
    /// Returns the name of its file. Another version has another hash, and so another name.
    fn file(&self) -> String {
        format!("{}_{}.deb", self.name, self.sha256.get(..16).unwrap_or(&self.sha256))
    }
}

/// Returns the package of Debian's newest kernel, such as `linux-image-6.1.0-44-amd64`.
pub(super) fn kernel() -> Result<String, String> {
    let text = output(Command::new("apt-cache").args(["depends", "linux-image-amd64"]))?;
    let kernel = text.lines().find_map(|line| {
        let name = line.trim().strip_prefix("Depends: ")?;
        name.starts_with("linux-image-").then(|| name.to_owned())
    });
    kernel.ok_or_else(|| "linux-image-amd64 depends on no kernel".to_owned())
}

/// Reads names and hashes from the output of `apt-cache show`.
fn records(text: &str) -> Vec<Package> {
    let record = |record: &str| {
        let field = |name: &str| {
            record.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
        };
        let (name, sha256) = (field("Package")?.to_owned(), field("SHA256")?.to_owned());
        Some(Package { name, sha256 })
    };
    text.split("\n\n").filter_map(record).collect()
}

fn sha256(path: &Path) -> Result<String, String> {
    let text = output(Command::new("sha256sum").arg(path))?;
    Ok(text.split_whitespace().next().unwrap_or_default().to_owned())
}

pub(super) fn named(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_a_name_and_a_hash() {
        let text = "Package: a\nVersion: 1:2\nSHA256: 0123456789abcdef77\nDescription: x\n more\n\n\
                    Package: b\nSize: 3\n";
        let found = records(text);
        let package = Package { name: "a".to_owned(), sha256: "0123456789abcdef77".to_owned() };
        assert_eq!(found, [package]);
        assert_eq!(found[0].file(), "a_0123456789abcdef.deb");
    }
}
