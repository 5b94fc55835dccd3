//! `dovetail reproduce NAME`: a published experiment, with the published figure beside ours.

mod blox;
mod hived;
mod jct_bound;
mod muri;
mod synergy;

use std::path::PathBuf;

use dovetail_model::suggest::nearest;
use dovetail_report::Figure;
use serde_json::Value;

use crate::args::ReproduceArgs;
use crate::failure::{Blame, Failure};
use crate::show;

/// An experiment that can be run by name.
struct Experiment {
    name: &'static str,
    what: &'static str,
    run: fn(&ReproduceArgs) -> Result<Outcome, Failure>,
}

const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "blox-fig6",
        what: "Blox: average JCT and responsiveness of FIFO, Tiresias and Optimus at 1 to 9 jobs an hour",
        run: blox::figure_6,
    },
    Experiment {
        name: "blox-fig12",
        what: "Blox: LAS with admission control at 8 jobs an hour",
        run: blox::figure_12,
    },
    Experiment {
        name: "blox-fig13",
        what: "Blox: FIFO, SRTF and LAS with admission control under bursts",
        run: blox::figure_13,
    },
    Experiment {
        name: "hived-sharing-anomaly",
        what: "HiveD: Philly's tenants under quota, in cells, and in private clusters; who waits longer for sharing",
        run: hived::sharing_anomaly,
    },
    Experiment {
        name: "jct-bound",
        what: "average JCT of srsf, sjf and FIFO with backfill, and the lower bound, on six public traces",
        run: jct_bound::run,
    },
    Experiment {
        name: "lab6-vc-safety",
        what: "Lab 6 on OpenPAI: four users share a virtual cluster of one machine",
        run: hived::vc_safety,
    },
    Experiment {
        name: "lab6-preemption",
        what: "Lab 6: a job of higher priority comes to a full virtual cluster",
        run: hived::preemption,
    },
    Experiment {
        name: "lab6-opportunistic",
        what: "Lab 6: a job borrows what another virtual cluster does not use, and gives it back",
        run: hived::opportunistic,
    },
    Experiment {
        name: "lab6-gang",
        what: "Lab 6: all instances of a job or none",
        run: hived::gang,
    },
    Experiment {
        name: "lab6-incremental",
        what: "Lab 6: instances on their own, also more of them than there are machines",
        run: hived::incremental,
    },
    Experiment {
        name: "muri-fig9",
        what: "Muri: SRTF and SRSF over Muri-S on eight traces; run times are known",
        run: muri::figure_9,
    },
    Experiment {
        name: "muri-fig10",
        what: "Muri: Tiresias, AntMan and Themis over Muri-L on eight traces; run times are not known",
        run: muri::figure_10,
    },
    Experiment {
        name: "muri-fig11",
        what: "Muri: Muri-L with the worst ordering, and without matching",
        run: muri::figure_11,
    },
    Experiment {
        name: "muri-fig12",
        what: "Muri: at most two, three and four jobs on the same GPUs, and AntMan",
        run: muri::figure_12,
    },
    Experiment {
        name: "muri-fig13",
        what: "Muri: models with one to four kinds of bottleneck",
        run: muri::figure_13,
    },
    Experiment {
        name: "muri-table3",
        what: "Muri: the test bed, tables 3 and 4, beside our model in rounds of 360 s",
        run: muri::table_3,
    },
    Experiment {
        name: "synergy-static",
        what: "Synergy: 100 jobs at once on 32 GPUs, six policies with CPU and memory in proportion, greedily, tuned",
        run: synergy::statics,
    },
    Experiment {
        name: "synergy-dynamic",
        what: "Synergy: the same over 100 jobs that come within 3.3 hours",
        run: synergy::dynamic,
    },
    Experiment {
        name: "synergy-load",
        what: "Synergy: average JCT over jobs an hour",
        run: synergy::load,
    },
    Experiment {
        name: "synergy-split",
        what: "Synergy: average JCT over the mix of image, language and speech models",
        run: synergy::split,
    },
    Experiment {
        name: "synergy-cpu-ratio",
        what: "Synergy: average JCT over CPUs for each GPU",
        run: synergy::cpu_ratio,
    },
    Experiment {
        name: "synergy-tune",
        what: "Synergy: every sizing with every order over all its workloads, and the bound of what there is to have",
        run: synergy::tune::tune,
    },
];

/// What an experiment gives.
struct Outcome {
    /// The table, for people.
    table: comfy_table::Table,
    /// Sentences below it: what was published and whether it holds here.
    claims: Vec<Claim>,
    /// Remarks that nothing depends on: what was left out, how it was made.
    notes: Vec<String>,
    /// The figures, for `--out`.
    figures: Vec<Figure>,
    /// The numbers, for `--json` and `--out`.
    data: Value,
}

/// A published statement, and whether our run agrees.
struct Claim {
    text: String,
    holds: bool,
}

impl Claim {
    fn new(text: impl Into<String>, holds: bool) -> Self {
        Self {
            text: text.into(),
            holds,
        }
    }
}

/// Runs the experiment, or lists them.
///
/// # Errors
/// When there is none of that name, or its data is absent, or a figure is off.
pub fn run(args: &ReproduceArgs) -> Result<(), Failure> {
    let Some(name) = &args.name else { return list() };
    let Some(experiment) = EXPERIMENTS.iter().find(|e| e.name == name) else {
        let near = nearest(name, EXPERIMENTS.iter().map(|e| e.name));
        let hint = if near.is_empty() {
            String::new()
        } else {
            format!(", did you mean {}?", near.join(" or "))
        };
        let known: Vec<&str> = EXPERIMENTS.iter().map(|e| e.name).collect();
        return Err(Failure::request(format!(
            "unknown experiment `{name}`{hint}; there are {}",
            known.join(", ")
        )));
    };
    let outcome = (experiment.run)(args)?;
    if let Some(dir) = &args.out {
        save(dir, experiment, &outcome)?;
    }
    if args.json {
        show::print(serde_json::to_string_pretty(&outcome.data).or_work()?)?;
    } else {
        show::print(outcome.table)?;
        for claim in &outcome.claims {
            show::print(format!("{} {}", if claim.holds { "✓" } else { "✗" }, claim.text))?;
        }
        for note in &outcome.notes {
            show::print(format!("· {note}"))?;
        }
        if let Some(dir) = &args.out {
            show::print(format!("report: {}", dir.join("report.html").display()))?;
        }
    }
    match outcome.claims.iter().find(|c| !c.holds) {
        None => Ok(()),
        Some(claim) => Err(Failure::Work(anyhow::anyhow!("not reproduced: {}", claim.text))),
    }
}

fn list() -> Result<(), Failure> {
    let mut table = show::table(&["experiment", "what it is"]);
    for e in EXPERIMENTS {
        table.add_row([e.name, e.what]);
    }
    show::print(table)
}

fn save(dir: &std::path::Path, experiment: &Experiment, outcome: &Outcome) -> Result<(), Failure> {
    use dovetail_report::files::write_file;
    let title = format!("{}: {}", experiment.name, experiment.what);
    let statements: Vec<(String, bool)> = outcome.claims.iter().map(|c| (c.text.clone(), c.holds)).collect();
    let page = dovetail_report::html_of_experiment(&title, &statements, &outcome.notes, &outcome.figures);
    write_file(&dir.join("report.html"), page.as_bytes()).or_work()?;
    let data = serde_json::to_string_pretty(&outcome.data).or_work()?;
    write_file(&dir.join("data.json"), data.as_bytes()).or_work()?;
    for figure in &outcome.figures {
        write_file(
            &dir.join("figures").join(format!("{}.svg", figure.name)),
            figure.svg().as_bytes(),
        )
        .or_work()?;
    }
    Ok(())
}

/// A folder of the shared data.
fn data(args: &ReproduceArgs, folder: &str) -> Result<PathBuf, Failure> {
    let root = args.data.clone().unwrap_or_else(|| {
        let shared =
            std::env::var_os("DOVETAIL_SHARED").map_or_else(|| PathBuf::from("../shared"), PathBuf::from);
        shared.join("data")
    });
    let path = root.join(folder);
    if path.is_dir() {
        return Ok(path);
    }
    Err(Failure::request(format!(
        "{} is not there: this experiment needs the public traces; say where they are with --data DIR or DOVETAIL_SHARED",
        path.display()
    )))
}
