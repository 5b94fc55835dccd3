//! The Python package for training scripts. The agent unpacks it, so that a script can `import dovetail` on every node
//! and the package matches the agent's socket protocol.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const FILES: [(&str, &str); 9] = [
    (
        "__init__.py",
        include_str!("../../../python/dovetail/__init__.py"),
    ),
    ("loop.py", include_str!("../../../python/dovetail/loop.py")),
    (
        "environment.py",
        include_str!("../../../python/dovetail/environment.py"),
    ),
    ("gates.py", include_str!("../../../python/dovetail/gates.py")),
    (
        "kubernetes.py",
        include_str!("../../../python/dovetail/kubernetes.py"),
    ),
    ("metrics.py", include_str!("../../../python/dovetail/metrics.py")),
    ("pytorch.py", include_str!("../../../python/dovetail/pytorch.py")),
    ("session.py", include_str!("../../../python/dovetail/session.py")),
    ("stages.py", include_str!("../../../python/dovetail/stages.py")),
];

/// Unpacks the package below the agent's folder and returns the folder for `PYTHONPATH`.
pub(crate) fn unpack(folder: &Path) -> io::Result<PathBuf> {
    let path = folder.join("python");
    let package = path.join("dovetail");
    fs::create_dir_all(&package)?;
    for folder in [&path, &package] {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    }
    for (name, text) in FILES {
        let file = package.join(name);
        // Running tasks may be reading an unchanged file.
        if fs::read_to_string(&file).is_ok_and(|current| current == text) {
            continue;
        }
        let temporary = package.join(format!("{name}.new"));
        fs::write(&temporary, text)?;
        fs::set_permissions(&temporary, fs::Permissions::from_mode(0o644))?;
        fs::rename(&temporary, &file)?;
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_package_is_unpacked_and_updated() {
        let dir = tempfile::tempdir().unwrap();
        let path = unpack(dir.path()).unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python/dovetail");
        let mut count = 0;
        for entry in fs::read_dir(source).unwrap() {
            let entry = entry.unwrap();
            if entry.path().extension().is_some_and(|e| e == "py") {
                let unpacked = fs::read(path.join("dovetail").join(entry.file_name())).unwrap();
                assert_eq!(unpacked, fs::read(entry.path()).unwrap());
                count += 1;
            }
        }
        assert_eq!(count, FILES.len());
        fs::write(path.join("dovetail/loop.py"), "old").unwrap();
        unpack(dir.path()).unwrap();
        assert_eq!(
            fs::read_to_string(path.join("dovetail/loop.py")).unwrap(),
            FILES[1].1
        );
    }
}
