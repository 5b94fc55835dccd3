//! Estimated width of text, for a layout without a font.

/// Returns the estimated width of `text` in a common sans-serif font.
pub(crate) fn text_width(text: &str, size: f64) -> f64 {
    text.chars().map(em).sum::<f64>() * size
}

/// Returns `text`, truncated with an ellipsis if it is wider than `room`.
pub(crate) fn fit(text: &str, room: f64, size: f64) -> String {
    if text_width(text, size) <= room {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut width = em('…') * size;
    for c in text.chars() {
        width += em(c) * size;
        if width > room {
            break;
        }
        out.push(c);
    }
    out.push('…');
    out
}

/// Breaks `text` at spaces into lines no wider than `room`.
pub(crate) fn wrap(text: &str, room: f64, size: f64) -> Vec<String> {
    let mut lines = vec![];
    let mut line = String::new();
    for word in text.split_whitespace() {
        let longer = if line.is_empty() {
            word.to_owned()
        } else {
            format!("{line} {word}")
        };
        if line.is_empty() || text_width(&longer, size) <= room {
            line = longer;
        } else {
            lines.push(fit(&line, room, size));
            line = word.to_owned();
        }
    }
    if !line.is_empty() {
        lines.push(fit(&line, room, size));
    }
    lines
}

fn em(c: char) -> f64 {
    match c {
        'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '|' | '!' | '\'' | 'I' => 0.29,
        'f' | 't' | 'r' | ' ' | '(' | ')' | '-' | '/' | '[' | ']' => 0.38,
        'm' | 'w' | 'M' | 'W' | '@' | '%' | '—' | '…' => 0.9,
        'A'..='Z' | '×' | '≤' => 0.67,
        c if c.is_ascii() => 0.6,
        c if (c as u32) < 0x1100 => 0.6,
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_truncated_or_wrapped_to_the_width() {
        assert_eq!(fit("fifo", 100.0, 12.0), "fifo");
        assert!(text_width(&fit(&"tiresias ".repeat(9), 100.0, 12.0), 12.0) <= 100.0);
        let lines = wrap("one two three four five six", 60.0, 12.0);
        assert_eq!(lines.join(" "), "one two three four five six");
        assert!(lines.len() > 1);
    }
}
