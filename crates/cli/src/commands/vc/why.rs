//! Why a group waits, in words.

use dovetail_cells::{Cells, Explanation, Remedy, Wait};

/// Holders that are named.
const NAMED: usize = 5;

/// An explanation as lines of text; `name` gives the name behind a group's key.
pub(super) fn lines(
    explanation: &Explanation,
    cells: &Cells,
    vc: &str,
    name: &dyn Fn(u64) -> String,
) -> Vec<String> {
    let layout = cells.layout();
    let mut lines = vec![wait(&explanation.wait, cells, explanation, vc)];
    for level in &explanation.levels {
        let chain = layout.chain(level.chain);
        let kind = &chain.types[level.level];
        let mut line = format!("{vc} owns {} {kind}, {} free", level.owned, level.free);
        if level.bad > 0 {
            line += &format!(", {} bad", level.bad);
        }
        if level.doomed > 0 {
            line += &format!(", {} doomed (too few healthy ones are left)", level.doomed);
        }
        line += &format!("; the cluster has {} to give", level.left_in_cluster);
        if level.bad_in_cluster > 0 {
            line += &format!(", {} of them with bad machines", level.bad_in_cluster);
        }
        lines.push(line);
    }
    if !explanation.holders.is_empty() {
        let holders = explanation.holders.iter().take(NAMED);
        let named: Vec<String> = holders
            .map(|h| {
                format!(
                    "{} ({} leaf cells at priority {})",
                    name(h.key),
                    h.leaves,
                    h.priority
                )
            })
            .collect();
        let more = explanation.holders.len().saturating_sub(NAMED);
        let rest = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        lines.push(format!("held by {}{rest}", named.join(", ")));
    }
    let group = |id: &dovetail_cells::GroupId| cells.group(*id).map(|g| name(g.key)).unwrap_or_default();
    lines.push(match &explanation.remedy {
        Remedy::Ends(groups) => {
            let names: Vec<String> = groups.iter().map(group).collect();
            format!("it could start if {} ended", names.join(" and "))
        }
        Remedy::Repairs(machines) => {
            let names: Vec<&str> = machines.iter().map(|m| layout.machines[m.index()].name.as_str()).collect();
            format!("it could start if {} came back", names.join(" and "))
        }
        Remedy::MoreCells { asked, owned } => format!(
            "it could start if {vc} owned more: it asks for {asked} leaf cells, and {vc} owns {owned} of the kind"
        ),
        Remedy::SmallerPods { asked, largest } => format!(
            "it could start with smaller pods: one asks for {asked} leaf cells, and the largest cell has {largest}"
        ),
        Remedy::HigherLimit => "it could start if its user's limit were higher, or its user's other groups ended".to_owned(),
        Remedy::Unknown => "no single kind of change was found that lets it start".to_owned(),
    });
    lines
}

fn wait(wait: &Wait, cells: &Cells, explanation: &Explanation, vc: &str) -> String {
    match wait {
        Wait::NoRoom {
            borrower,
            asked,
            available,
            unusable,
        } => {
            let place = if *borrower {
                "the cluster".to_owned()
            } else {
                format!("virtual cluster {vc}")
            };
            let bad = if *unusable > 0 {
                format!(", {unusable} of them on machines that are bad or not suggested")
            } else {
                String::new()
            };
            format!("it asks for {asked} leaf cells; {available} in {place} are free or would give way{bad}")
        }
        Wait::NoHealthyCell { level, free, bad } => {
            let kind = explanation.levels.iter().find(|l| l.level == *level);
            let kind = kind.map_or("cell", |l| cells.layout().chain(l.chain).types[*level].as_str());
            format!(
                "{vc} may have another {kind}, but only bad or not suggested machines could back it ({free} free, {bad} \
                 bad)"
            )
        }
        Wait::UserLimit { limit, held, asked } => {
            format!("its user holds {held} leaf cells, asks for {asked} more, and may hold {limit}")
        }
    }
}
