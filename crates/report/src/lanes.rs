//! Draws the period of a group as text: a row of letters for each resource, two periods side by side.

use dovetail_model::layout::{Layout, Resource, ResourceUse};

use crate::format::grouped;

/// Width of the names of resources, in columns.
const LABEL: usize = 9;
/// Number of periods drawn.
const PERIODS: usize = 2;

/// Returns the letter of a member.
pub fn letter(member: usize) -> char {
    char::from(b'A' + (member % 26) as u8)
}

/// Returns unique names: models that occur several times are numbered.
pub fn names(models: &[&str]) -> Vec<String> {
    let mut names = Vec::new();
    for (i, model) in models.iter().enumerate() {
        let before = models[..i].iter().filter(|m| *m == model).count();
        let is_repeated = models.iter().filter(|m| *m == model).count() > 1;
        names.push(if is_repeated {
            format!("{model} #{}", before + 1)
        } else {
            (*model).to_owned()
        });
    }
    names
}

/// Returns the drawing, at most `width` columns wide, with ANSI colours if requested.
pub fn draw(layout: &Layout, width: usize, colours: bool) -> String {
    let cells = (width.clamp(40, 160) - LABEL) / PERIODS;
    let mut text = String::new();
    let mut short = false;
    for resource in Resource::ALL {
        let row = row(layout, resource, cells);
        short |= row.iter().flatten().any(|(_, short)| *short);
        let shown: String = row.iter().map(|cell| paint(*cell, colours)).collect();
        text.push_str(&format!(
            "{:<LABEL$}{}\n",
            resource.name(),
            shown.repeat(PERIODS).trim_end()
        ));
    }
    text.push_str(&axis(layout, cells));
    if short {
        text.push_str(&" ".repeat(LABEL));
        text.push_str("small: shorter than a column\n");
    }
    text
}

/// Returns one period of one resource: the member in each cell, and whether its use is shorter than a cell.
fn row(layout: &Layout, resource: Resource, cells: usize) -> Vec<Option<(usize, bool)>> {
    let cell = layout.steady_us / cells as f64;
    let mut row = vec![None; cells];
    let uses: Vec<&ResourceUse> = layout.uses.iter().filter(|u| u.resource == resource).collect();
    for (i, place) in row.iter_mut().enumerate() {
        let middle = (i as f64 + 0.5) * cell;
        let user = uses.iter().find(|u| u.start_us <= middle && middle < u.end_us);
        *place = user.map(|u| (u.member, false));
    }
    // A use too short to reach the middle of a cell still gets one, if it is free.
    for usage in uses {
        let (first, last) = ((usage.start_us / cell) as usize, (usage.end_us / cell) as usize);
        let range = first.min(cells - 1)..=last.min(cells - 1);
        let seen = range
            .clone()
            .any(|i| row[i].is_some_and(|(m, _)| m == usage.member));
        if let (false, Some(i)) = (seen, range.into_iter().find(|i| row[*i].is_none())) {
            row[i] = Some((usage.member, true));
        }
    }
    row
}

fn paint(cell: Option<(usize, bool)>, colours: bool) -> String {
    let Some((member, short)) = cell else {
        return "·".to_owned();
    };
    let letter = match short {
        true => letter(member).to_ascii_lowercase(),
        false => letter(member),
    };
    if !colours {
        return letter.to_string();
    }
    // Black on blue, yellow, green, magenta.
    let background = [104, 103, 102, 105][member % 4];
    format!("\u{1b}[30;{background}m{letter}\u{1b}[0m")
}

/// Returns the axis: marks and times at the beginning and end of each period.
fn axis(layout: &Layout, cells: usize) -> String {
    let mut marks = " ".repeat(LABEL);
    let mut texts = " ".repeat(LABEL);
    for period in 0..=PERIODS {
        let at = LABEL + period * cells;
        let label = format!("{} ms", grouped(layout.steady_us * period as f64 / 1000.0, 0));
        let at_most = LABEL + PERIODS * cells;
        let mark = at.min(at_most - 1);
        marks.push_str(&" ".repeat(mark - marks.chars().count()));
        marks.push('╵');
        let from = match period {
            0 => at,
            PERIODS => at_most.saturating_sub(label.chars().count()),
            _ => at - label.chars().count() / 2,
        };
        texts.push_str(&" ".repeat(from.saturating_sub(texts.chars().count())));
        texts.push_str(&label);
    }
    format!("{marks}\n{texts}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use dovetail_model::Stages;
    use dovetail_model::layout::layout;
    use dovetail_model::stages::Ordering;

    #[test]
    fn rows_fit_the_width_and_short_stages_are_visible() {
        let group = [
            Stages::three(514_000, 14_000, 0, 517_000),
            Stages::three(500, 160_000, 300, 178_000),
        ];
        let drawn = layout(&group, Ordering::Best);
        for width in [40, 80, 100, 160] {
            let text = draw(&drawn, width, false);
            assert!(text.lines().all(|l| l.chars().count() <= width), "{text}");
            assert!(
                text.contains('A') && text.contains('B') && text.contains('b'),
                "{text}"
            );
        }
        assert!(draw(&drawn, 80, true).contains("\u{1b}["));
    }

    #[test]
    fn equal_models_are_numbered() {
        assert_eq!(names(&["a2c", "bert", "a2c"]), ["a2c #1", "bert", "a2c #2"]);
    }
}
