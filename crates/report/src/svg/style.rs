//! One palette and one set of rules, for pages (custom properties) and for files (plain colours).

/// Colours for series: Okabe and Ito's, adjusted so that each stands out on its background.
/// `(name, on light, on dark)`.
const THEME: [(&str, &str, &str); 14] = [
    ("bg", "#ffffff", "#14171c"),
    ("fg", "#1c2127", "#e8eaed"),
    ("muted", "#5b6570", "#a3acb6"),
    ("grid", "#e4e8ec", "#2b3139"),
    ("axis", "#98a2ad", "#5d6772"),
    ("track", "#f1f3f5", "#20252c"),
    ("c0", "#0072b2", "#4aa3df"),
    ("c1", "#d55e00", "#f07c3a"),
    ("c2", "#009e73", "#2cc49b"),
    ("c3", "#b85c93", "#e08fbe"),
    ("c4", "#e69f00", "#f5bd45"),
    ("c5", "#46aee8", "#9adcff"),
    ("c6", "#8a7d00", "#f0e442"),
    ("c7", "#6b7079", "#c3c8ce"),
];

/// Number of series colours before they repeat.
pub(crate) const COLOURS: usize = 8;
/// Number of job colours before they repeat.
pub(crate) const JOB_COLOURS: usize = 8;

/// Fill colours of jobs: Tol's light palette, designed for black text and readable on both backgrounds.
const JOBS: [&str; JOB_COLOURS] = [
    "#77aadd", "#ee8866", "#eedd88", "#ffaabb", "#99ddff", "#44bb99", "#bbcc33", "#b8a8d8",
];

const RULES: &str = "\
.dv text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif;font-size:11.5px;\
fill:var(--fg);font-variant-numeric:tabular-nums}\
.dv .m{fill:var(--muted);font-weight:400}.dv .k{font-weight:600}.dv .sm{font-size:10.5px}.dv .h{font-size:15px;font-weight:600}\
.dv .bg{fill:var(--bg)}.dv .row{fill:var(--track)}\
.dv .g{stroke:var(--grid);fill:none}.dv .a{stroke:var(--axis);fill:none}\
.dv .l{fill:none;stroke-width:1.9;stroke-linejoin:round;stroke-linecap:round}\
.dv .d{stroke-dasharray:6 4}.dv .dd{stroke-dasharray:2 3.5}\
.dv .e{stroke-width:1.2;fill:none}.dv .o{fill:var(--bg);stroke-width:1.6}\
.dv .b{stroke:var(--fg);fill:none;stroke-width:1.4;stroke-dasharray:5 3}\
.dv .u{stroke:var(--fg);fill:none;stroke-width:1}\
.dv .soft{fill-opacity:.3}.dv .hollow{fill-opacity:.16;stroke-width:1.3;stroke-dasharray:4 2.5}\
.dv .j{stroke:var(--bg);stroke-width:.6}.dv text.jt{fill:#14171c;font-size:10px}";

/// Returns the style of a page: its theme as custom properties (with a switch), then the rules.
pub(crate) fn page_style() -> String {
    let light = properties(|(name, light, _)| (name, light));
    let dark = properties(|(name, _, dark)| (name, dark));
    format!(
        ":root{{color-scheme:light;{light}}}\n\
         @media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{color-scheme:dark;{dark}}}}}\n\
         :root[data-theme=dark]{{color-scheme:dark;{dark}}}\n{}\n",
        all_rules()
    )
}

/// Returns the style of a separate file. Colours are written out, since not every viewer supports custom properties.
pub(crate) fn file_style() -> String {
    let filled = |pick: fn(&(&'static str, &'static str, &'static str)) -> &'static str, rules: &str| {
        THEME.iter().fold(rules.to_owned(), |css, entry| {
            css.replace(&format!("var(--{})", entry.0), pick(entry))
        })
    };
    let rules = all_rules();
    let coloured: Vec<&str> = rules
        .split_inclusive('}')
        .filter(|rule| rule.contains("var(--"))
        .collect();
    format!(
        "{}@media (prefers-color-scheme:dark){{{}}}",
        filled(|entry| entry.1, &rules),
        filled(|entry| entry.2, &coloured.concat())
    )
}

fn properties(
    pick: impl Fn((&'static str, &'static str, &'static str)) -> (&'static str, &'static str),
) -> String {
    THEME
        .into_iter()
        .map(pick)
        .map(|(name, colour)| format!("--{name}:{colour};"))
        .collect()
}

fn all_rules() -> String {
    let series: String = (0..COLOURS)
        .map(|i| format!(".dv .s{i}{{stroke:var(--c{i})}}.dv .f{i}{{fill:var(--c{i})}}"))
        .collect();
    let jobs: String = JOBS
        .iter()
        .enumerate()
        .map(|(i, colour)| format!(".dv .j{i}{{fill:{colour}}}"))
        .collect();
    format!("{RULES}{series}{jobs}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_plain_colours_and_a_page_has_properties() {
        assert!(!file_style().contains("var("));
        assert!(file_style().contains("#4aa3df"));
        assert!(page_style().contains("--c0:#0072b2;"));
    }
}
