//! Suggestions for unknown names ("did you mean ...?").

/// Returns up to three names that are close to `word`, nearest first.
pub fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut scored: Vec<(usize, &str)> = names
        .into_iter()
        .map(|name| (distance(word, name), name))
        .filter(|(d, name)| {
            *d <= 1 + word.len().min(name.len()) / 3 || (word.len() >= 3 && name.starts_with(word))
        })
        .collect();
    scored.sort();
    scored.into_iter().map(|(_, name)| name).take(3).collect()
}

/// Returns the edit distance in bytes; swapping two neighbours counts as one edit.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let same = |i: usize, j: usize| a[i].eq_ignore_ascii_case(&b[j]);
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 0..a.len() {
        let mut row = vec![i + 1];
        for j in 0..b.len() {
            let replaced = rows[i][j] + usize::from(!same(i, j));
            let mut least = replaced.min(row[j] + 1).min(rows[i][j + 1] + 1);
            if i > 0 && j > 0 && same(i, j - 1) && same(i - 1, j) {
                least = least.min(rows[i - 1][j - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_suggested_nearest_first_and_far_names_not_at_all() {
        let names = ["fifo", "srtf", "srsf", "tiresias"];
        assert_eq!(nearest("tiresas", names), ["tiresias"]);
        assert_eq!(nearest("srt", names), ["srtf", "srsf"]);
        assert!(nearest("gandiva", names).is_empty());
        assert_eq!(nearest("srft", ["drf", "sjf", "srsf", "srtf"])[0], "srtf");
    }
}
