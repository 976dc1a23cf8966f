// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A Debian package of what is in this tree: `target/debian/weir_VERSION_ARCHITECTURE.deb`.
//!
//! A tree and a compiler always give the same file, byte for byte: names are in order, owners are
//! root, times are `SOURCE_DATE_EPOCH` or the commit's. `packaging/debian` has the files that
//! Debian asks for; `weir` itself writes manual pages and completions.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{output, run};
use crate::tools::{broker_path, build as build_programs, cni_path, weir_path};

/// Builds the programs for release and packs them.
pub(crate) fn build(arguments: &[String]) -> Result<(), String> {
    let target = match arguments {
        [] => PathBuf::from("target/debian"),
        [option, folder] if option == "--out" => PathBuf::from(folder),
        _ => return Err("usage: deb [--out FOLDER]".to_owned()),
    };
    build_programs()?;
    let tree = PackageTree::new(target.join("tree"))?;
    program(&tree)?;
    documents(&tree)?;
    service(&tree)?;
    let version = version()?;
    let architecture = output(Command::new("dpkg").arg("--print-architecture"))?;
    let architecture = architecture.trim();
    control(&tree, &target, &version, architecture)?;
    let file = target.join(format!("weir_{version}_{architecture}.deb"));
    let mut pack = Command::new("dpkg-deb");
    pack.args(["--build", "--root-owner-group", "-Zxz"]).arg(&tree.root).arg(&file);
    run(pack.env("SOURCE_DATE_EPOCH", epoch()?))?;
    check(&file)?;
    println!("{}", file.display());
    Ok(())
}

/// The package's files as they will be on disk.
struct PackageTree {
    root: PathBuf,
}

impl PackageTree {
    /// Makes an empty tree.
    fn new(root: PathBuf) -> Result<Self, String> {
        if root.exists() {
            fs::remove_dir_all(&root).map_err(|error| named(&root, &error))?;
        }
        let tree = Self { root };
        tree.folder("DEBIAN")?;
        Ok(tree)
    }

    fn folder(&self, path: &str) -> Result<PathBuf, String> {
        let whole = self.root.join(path);
        fs::create_dir_all(&whole).map_err(|error| named(&whole, &error))?;
        // Set modes explicitly, so that they do not depend on the builder's umask.
        for folder in whole.ancestors().take_while(|folder| folder.starts_with(&self.root)) {
            set_mode(folder, 0o755)?;
        }
        Ok(whole)
    }

    fn put(&self, path: &str, mode: u32, content: &[u8]) -> Result<(), String> {
        let (folder, name) = path.rsplit_once('/').ok_or("a file needs a folder")?;
        let file = self.folder(folder)?.join(name);
        fs::write(&file, content).map_err(|error| named(&file, &error))?;
        set_mode(&file, mode)
    }

    fn copy(&self, from: &str, path: &str) -> Result<(), String> {
        self.put(path, 0o644, &read(Path::new(from))?)
    }

    /// Writes a file compressed, without the time and the name that gzip would add.
    fn zip(&self, path: &str, content: &[u8]) -> Result<(), String> {
        self.put(path, 0o644, content)?;
        let file = self.root.join(path);
        run(Command::new("gzip").args(["--best", "--no-name", "--force"]).arg(&file))?;
        set_mode(&self.root.join(format!("{path}.gz")), 0o644)
    }

    /// Returns the paths of all files but those in `DEBIAN`, in order.
    fn files(&self) -> Result<Vec<String>, String> {
        let mut files = Vec::new();
        let mut folders = vec![self.root.clone()];
        while let Some(folder) = folders.pop() {
            let entries = fs::read_dir(&folder).map_err(|error| named(&folder, &error))?;
            for entry in entries {
                let path = entry.map_err(|error| named(&folder, &error))?.path();
                let inside = path.strip_prefix(&self.root).unwrap_or(&path);
                if path.is_dir() {
                    if inside != Path::new("DEBIAN") {
                        folders.push(path);
                    }
                } else {
                    files.push(inside.display().to_string());
                }
            }
        }
        files.sort();
        Ok(files)
    }
}

fn program(tree: &PackageTree) -> Result<(), String> {
    let programs = [(PROGRAM, weir_path()), (BROKER, broker_path()), (CNI, cni_path())];
    for (path, built) in programs {
        tree.put(path, 0o755, &read(&built)?)?;
        let file = tree.root.join(path);
        let strip = ["--strip-unneeded", "--remove-section=.comment"];
        run(Command::new("strip").args(strip).arg(&file))?;
    }
    Ok(())
}

/// Puts in manual pages, completions, the documents and what `packaging` has for operators.
fn documents(tree: &PackageTree) -> Result<(), String> {
    let pages = tree.root.with_file_name("man");
    run(Command::new(weir_path()).arg("man").arg(&pages))?;
    for (name, page) in folder_of(&pages)? {
        tree.zip(&format!("usr/share/man/man1/{name}"), &page)?;
    }
    for (shell, path) in [
        ("bash", "usr/share/bash-completion/completions/weir"),
        ("zsh", "usr/share/zsh/vendor-completions/_weir"),
        ("fish", "usr/share/fish/vendor_completions.d/weir.fish"),
    ] {
        let script = output(Command::new(weir_path()).args(["completions", shell]))?;
        tree.put(path, 0o644, script.as_bytes())?;
    }
    put_pages(tree)?;
    tree.copy("packaging/debian/copyright", "usr/share/doc/weir/copyright")?;
    for (example, text) in folder_of(Path::new("examples"))? {
        tree.put(&format!("usr/share/doc/weir/examples/{example}"), 0o644, &text)?;
    }
    tree.zip("usr/share/doc/weir/NEWS", &read(Path::new("CHANGELOG.md"))?)?;
    tree.zip("usr/share/doc/weir/changelog", changelog()?.as_bytes())?;
    // Alert rules, dashboards, hooks for hypervisors and additions to the unit.
    let kinds = [("prometheus", 0o644), ("grafana", 0o644), ("hooks", 0o755), ("systemd", 0o644)];
    for (kind, mode) in kinds {
        for (name, text) in folder_of(&Path::new("packaging").join(kind))? {
            tree.put(&format!("usr/share/weir/{kind}/{name}"), mode, &text)?;
        }
    }
    Ok(())
}

/// Puts in all pages, since they link to each other, but no pictures. Pages of the repository's
/// root move beside the others, and links are rewritten accordingly.
fn put_pages(tree: &PackageTree) -> Result<(), String> {
    let put = |page: &str, text: &str| {
        tree.put(&format!("usr/share/doc/weir/{page}"), 0o644, text.as_bytes())
    };
    for (folder, up, down) in [
        ("", "](../", "]("),
        ("algorithms/", "](../../", "](../"),
        ("reproduced/", "](../../", "](../"),
    ] {
        for (page, text) in folder_of(&Path::new("docs").join(folder))? {
            let is_shipped = page.ends_with(".md")
                || ["openapi.json", "broker-openapi.json", "broker.xsd"].contains(&page.as_str());
            if is_shipped {
                let text = String::from_utf8_lossy(&text).replace("](../README.md", "](WEIR.md");
                let text = text.replace(up, down);
                put(&format!("{folder}{page}"), &text)?;
            }
        }
    }
    for page in ["README.md", "PROMISES.md", "SECURITY.md", "CHANGELOG.md", "CONTRIBUTING.md"] {
        let text = read(Path::new(page))?;
        // `docs/README.md` already has that name there.
        let name = if page == "README.md" { "WEIR.md" } else { page };
        put(name, &String::from_utf8_lossy(&text).replace("](docs/", "]("))?;
    }
    Ok(())
}

fn service(tree: &PackageTree) -> Result<(), String> {
    for unit in ["weir-node@.service", "weir-broker@.service"] {
        tree.copy(&format!("packaging/{unit}"), &format!("lib/systemd/system/{unit}"))?;
    }
    tree.copy("packaging/debian/weir-node.default", "etc/default/weir-node")?;
    tree.folder("etc/weir").map(drop)
}

fn control(
    tree: &PackageTree,
    target: &Path,
    version: &str,
    architecture: &str,
) -> Result<(), String> {
    let files = tree.files()?;
    let mut sums = String::new();
    let mut kib = 0;
    for file in &files {
        let path = tree.root.join(file);
        let sum = output(Command::new("md5sum").arg(&path))?;
        let sum = sum.split_whitespace().next().unwrap_or_default();
        sums += &format!("{sum}  {file}\n");
        // Debian's own tools count in the same way.
        kib += fs::metadata(&path).map_err(|error| named(&path, &error))?.len().div_ceil(1024);
    }
    let depends = depends(tree, target)?;
    let text = String::from_utf8_lossy(&read(Path::new("packaging/debian/control"))?)
        .replace("@VERSION@", version)
        .replace("@ARCHITECTURE@", architecture)
        .replace("@INSTALLED_SIZE@", &kib.to_string())
        .replace("@DEPENDS@", &depends);
    tree.put("DEBIAN/control", 0o644, text.as_bytes())?;
    tree.put("DEBIAN/md5sums", 0o644, sums.as_bytes())?;
    let configuration: String = files
        .iter()
        .filter(|file| file.starts_with("etc/"))
        .map(|file| format!("/{file}\n"))
        .collect();
    tree.put("DEBIAN/conffiles", 0o644, configuration.as_bytes())?;
    for script in ["postinst", "prerm", "postrm"] {
        let text = read(&Path::new("packaging/debian").join(script))?;
        tree.put(&format!("DEBIAN/{script}"), 0o755, &text)?;
    }
    Ok(())
}

/// Returns the packages of the libraries that the programs are linked with.
fn depends(tree: &PackageTree, target: &Path) -> Result<String, String> {
    // The tool expects to run in a source package.
    let place = target.join("shlibs");
    let folder = place.join("debian");
    fs::create_dir_all(&folder).map_err(|error| named(&folder, &error))?;
    let stub = folder.join("control");
    fs::write(&stub, "Source: weir\n\nPackage: weir\nArchitecture: any\n")
        .map_err(|error| named(&stub, &error))?;
    let mut find = Command::new("dpkg-shlibdeps");
    find.arg("-O").current_dir(&place);
    for path in [PROGRAM, BROKER, CNI] {
        let program = fs::canonicalize(tree.root.join(path));
        find.arg("-e").arg(program.map_err(|error| named(&tree.root, &error))?);
    }
    let found = output(&mut find)?;
    let line = found.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
    line.map(ToOwned::to_owned).ok_or_else(|| format!("dpkg-shlibdeps says no libraries: {found}"))
}

/// Returns a changelog in Debian's form, which refers to NEWS.
fn changelog() -> Result<String, String> {
    let date = output(Command::new("date").args(["-u", "-R", "-d", &format!("@{}", epoch()?)]))?;
    let maintainer = String::from_utf8_lossy(&read(Path::new("packaging/debian/control"))?)
        .lines()
        .find_map(|line| line.strip_prefix("Maintainer: ").map(ToOwned::to_owned))
        .ok_or("packaging/debian/control names no maintainer")?;
    let (version, date) = (version()?, date.trim());
    Ok(format!(
        "weir ({version}) unstable; urgency=medium\n\n  * What changed is in NEWS.gz.\n\n \
         -- {maintainer}  {date}\n"
    ))
}

/// Runs lintian if it is installed. Its errors fail the build.
fn check(file: &Path) -> Result<(), String> {
    if Command::new("lintian").arg("--version").output().is_err() {
        println!("SKIPPED lintian: not installed");
        return Ok(());
    }
    run(Command::new("lintian").args(["--fail-on", "error", "--allow-root"]).arg(file))
}

/// Returns the version of the workspace as Debian writes it: `~` instead of `-`, so that a version
/// in development (`-dev`) sorts before its release.
fn version() -> Result<String, String> {
    let manifest = String::from_utf8_lossy(&read(Path::new("Cargo.toml"))?).into_owned();
    let mut lines = manifest.lines().skip_while(|line| *line != "[workspace.package]");
    let line = lines.find_map(|line| line.strip_prefix("version = "));
    line.map(|version| version.trim_matches('"').replace('-', "~"))
        .ok_or_else(|| "Cargo.toml: [workspace.package] has no version".to_owned())
}

/// Returns the time that all files get, in seconds since 1970.
fn epoch() -> Result<String, String> {
    if let Ok(given) = std::env::var("SOURCE_DATE_EPOCH") {
        return Ok(given);
    }
    Ok(output(Command::new("git").args(["log", "-1", "--format=%ct"]))?.trim().to_owned())
}

/// Returns the names and contents of a folder's files, in order.
fn folder_of(folder: &Path) -> Result<Vec<(String, Vec<u8>)>, String> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| named(folder, &error))? {
        let path = entry.map_err(|error| named(folder, &error))?.path();
        if let Some(name) = path.file_name().filter(|_| path.is_file()) {
            files.push((name.to_string_lossy().into_owned(), read(&path)?));
        }
    }
    files.sort();
    Ok(files)
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| named(path, &error))
}

fn set_mode(path: &Path, mode: u32) -> Result<(), String> {
    let mode = fs::Permissions::from_mode(mode);
    fs::set_permissions(path, mode).map_err(|error| named(path, &error))
}

fn named(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

const PROGRAM: &str = "usr/bin/weir";
const BROKER: &str = "usr/bin/weir-broker";
const CNI: &str = "usr/lib/cni/weir-cni";
