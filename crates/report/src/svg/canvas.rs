//! The drawing surface: writes shapes with fixed decimals and escapes text.

use std::borrow::Cow;

/// Horizontal alignment of a text at its point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// Collects shapes.
#[derive(Debug, Clone)]
pub(crate) struct Canvas {
    width: f64,
    height: f64,
    body: String,
}

impl Canvas {
    pub(crate) fn new(width: f64, height: f64) -> Self {
        Self {
            width,
            height,
            body: String::new(),
        }
    }

    pub(crate) fn finish(self) -> (f64, f64, String) {
        (self.width, self.height, self.body)
    }

    pub(crate) fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        let mut path = PathData::default();
        path.move_to(x1, y1);
        path.line_to(x2, y2);
        self.path(class, &path, None);
    }

    pub(crate) fn rect(&mut self, class: &str, x: f64, y: f64, width: f64, height: f64) {
        self.body.push_str(&format!(
            "<rect class=\"{class}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>\n",
            num(x),
            num(y),
            num(width.max(0.0)),
            num(height.max(0.0))
        ));
    }

    /// Draws a path with an optional tooltip.
    pub(crate) fn path(&mut self, class: &str, path: &PathData, hint: Option<&str>) {
        match hint {
            None => self
                .body
                .push_str(&format!("<path class=\"{class}\" d=\"{}\"/>\n", path.0)),
            Some(hint) => self.body.push_str(&format!(
                "<path class=\"{class}\" d=\"{}\"><title>{}</title></path>\n",
                path.0,
                escape(hint)
            )),
        }
    }

    pub(crate) fn circle(&mut self, class: &str, x: f64, y: f64, radius: f64) {
        self.body.push_str(&format!(
            "<circle class=\"{class}\" cx=\"{}\" cy=\"{}\" r=\"{}\"/>\n",
            num(x),
            num(y),
            num(radius)
        ));
    }

    /// Draws a text followed by a muted one; the position of the second depends on the viewer's font.
    pub(crate) fn text_pair(&mut self, class: &str, x: f64, y: f64, first: &str, second: &str) {
        let class = if class.is_empty() {
            String::new()
        } else {
            format!(" class=\"{class}\"")
        };
        self.body.push_str(&format!(
            "<text x=\"{}\" y=\"{}\"><tspan{class}>{}</tspan><tspan class=\"m\" dx=\"6\">{}</tspan></text>\n",
            num(x),
            num(y),
            escape(first),
            escape(second)
        ));
    }

    pub(crate) fn text(&mut self, class: &str, anchor: Anchor, x: f64, y: f64, content: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let class = if class.is_empty() {
            String::new()
        } else {
            format!(" class=\"{class}\"")
        };
        self.body.push_str(&format!(
            "<text{class}{anchor} x=\"{}\" y=\"{}\">{}</text>\n",
            num(x),
            num(y),
            escape(content)
        ));
    }
}

/// The `d` of a path, in absolute coordinates.
#[derive(Debug, Clone, Default)]
pub(crate) struct PathData(String);

impl PathData {
    pub(crate) fn move_to(&mut self, x: f64, y: f64) {
        self.0.push_str(&format!("M{} {}", num(x), num(y)));
    }

    pub(crate) fn line_to(&mut self, x: f64, y: f64) {
        self.0.push_str(&format!("L{} {}", num(x), num(y)));
    }

    pub(crate) fn horizontal_to(&mut self, x: f64) {
        self.0.push_str(&format!("H{}", num(x)));
    }

    pub(crate) fn vertical_to(&mut self, y: f64) {
        self.0.push_str(&format!("V{}", num(y)));
    }

    pub(crate) fn close(&mut self) {
        self.0.push('Z');
    }

    pub(crate) fn rect(&mut self, x: f64, y: f64, width: f64, height: f64) {
        self.0.push_str(&format!(
            "M{} {}h{}v{}h-{}Z",
            num(x),
            num(y),
            num(width),
            num(height),
            num(width)
        ));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Formats a coordinate: at most one decimal, never `NaN`, never `-0`.
pub(crate) fn num(value: f64) -> String {
    let value = if value.is_finite() {
        value.clamp(-1e6, 1e6)
    } else {
        0.0
    };
    let tenths = (value * 10.0).round() as i64;
    let sign = if tenths < 0 { "-" } else { "" };
    match tenths.abs() % 10 {
        0 => format!("{sign}{}", tenths.abs() / 10),
        rest => format!("{sign}{}.{rest}", tenths.abs() / 10),
    }
}

/// Escapes text for element content and attributes; characters that XML forbids become U+FFFD.
pub fn escape(text: &str) -> Cow<'_, str> {
    let plain =
        |c: char| !matches!(c, '&' | '<' | '>' | '"' | '\'' | '\u{fffe}' | '\u{ffff}') && !c.is_control();
    if text.chars().all(plain) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' | '\n' | '\r' => out.push(' '),
            c if plain(c) => out.push(c),
            _ => out.push('\u{fffd}'),
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_have_one_decimal_and_are_always_finite() {
        let shown: Vec<String> = [0.0, -0.04, 1.25, -3.5, 100.0, f64::NAN, f64::INFINITY, 1e300]
            .map(num)
            .into();
        assert_eq!(shown, ["0", "0", "1.3", "-3.5", "100", "0", "0", "1000000"]);
    }

    #[test]
    fn names_are_escaped() {
        assert_eq!(escape("a<b>&\"'\u{0}\n"), "a&lt;b&gt;&amp;&quot;&#39;\u{fffd} ");
    }
}
