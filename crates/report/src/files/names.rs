//! Short names for files that are compared.

use std::path::{Component, PathBuf};

/// Returns the paths without the directories and file name that all of them share.
pub fn short_names(files: &[PathBuf]) -> Vec<String> {
    let parts: Vec<Vec<_>> = files.iter().map(|f| f.components().collect()).collect();
    let shortest = parts.iter().map(Vec::len).min().unwrap_or(0);
    let same = |at: &dyn Fn(&Vec<_>) -> Component<'_>| parts.iter().all(|p| at(p) == at(&parts[0]));
    let head = (0..shortest).take_while(|i| same(&|p| p[*i])).count();
    let tail = (0..shortest.saturating_sub(head + 1))
        .take_while(|i| same(&|p| p[p.len() - 1 - i]))
        .count();
    if files.len() < 2 || head >= shortest {
        return files.iter().map(|f| f.display().to_string()).collect();
    }
    let name = |p: &Vec<Component<'_>>| p[head..p.len() - tail].iter().collect::<PathBuf>();
    parts.iter().map(|p| name(p).display().to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_what_distinguishes_files() {
        let short = |files: &[&str]| short_names(&files.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(
            short(&["/a/b/srtf/job.csv", "/a/b/srsf/job.csv"]),
            ["srtf", "srsf"]
        );
        assert_eq!(short(&["out/job.csv", "out/jobs.csv"]), ["job.csv", "jobs.csv"]);
        assert_eq!(short(&["x/job.csv", "x/job.csv"]), ["x/job.csv", "x/job.csv"]);
        assert_eq!(short(&["job.csv", "x/job.csv"]), ["job.csv", "x/job.csv"]);
        assert_eq!(short(&["x/job.csv"]), ["x/job.csv"]);
    }
}
