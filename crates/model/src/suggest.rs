//! "Did you mean": the nearest names to one that is not known.

/// Up to three names that are close to `word`, nearest first.
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

/// Edit distance by bytes.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(!x.eq_ignore_ascii_case(&y));
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_come_first_and_far_ones_not_at_all() {
        let names = ["fifo", "srtf", "srsf", "tiresias"];
        assert_eq!(nearest("tiresas", names), ["tiresias"]);
        assert_eq!(nearest("srt", names), ["srtf", "srsf"]);
        assert!(nearest("gandiva", names).is_empty());
    }
}
