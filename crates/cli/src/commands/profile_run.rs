//! `dovetail profile run`: measures a command at a few numbers of CPUs and fills in the rest.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dovetail_model::Share;
use dovetail_report::figures::{LineChart, Series};
use dovetail_report::format::significant;
use dovetail_workload::profiling::{Curve, DataSet, Walk};
use dovetail_workload::sensitivity::{SensitivityProfile, SensitivityTable};
use serde_json::{Value, json};

use crate::args::ProfileRunArgs;
use crate::failure::{Blame, Failure};
use crate::profiler::{Counting, Machine, Seen, Trial, memory_gbps};
use crate::{progress, show};

/// Where this or more would be asked of a machine, it is a slip.
const MOST: f64 = 1e9;

/// Measures, shows, and writes.
///
/// # Errors
/// A request that is wrong, or a command that cannot be measured.
pub fn run(args: &ProfileRunArgs) -> Result<(), Failure> {
    let machine = Machine::this().or_work()?;
    let plan = Plan::new(args, &machine)?;
    if !args.quiet {
        eprintln!(
            "note: {} CPUs in {} NUMA domain{}; the command is bound to some of them (affinity)",
            machine.cpus(),
            machine.domains.len(),
            if machine.domains.len() == 1 { "" } else { "s" }
        );
        if let Some(load) = machine
            .load
            .filter(|load| *load > 0.5 * f64::from(machine.cpus()))
        {
            eprintln!("warning: other work runs here (load {load:.1}): rates will be lower, and less sure");
        }
    }
    let (points, ended) = measure(args, &plan, &machine)?;
    let outcome = plan.outcome(args, points, ended)?;
    if let Some(path) = &args.svg {
        dovetail_report::files::write_file(path, outcome.figure().svg().as_bytes()).or_work()?;
    }
    if let Some(path) = &args.out {
        let table = plan.table_with(args, outcome.profile.clone())?;
        dovetail_report::files::write_file(path, table.to_yaml().as_bytes()).or_work()?;
    }
    if args.json {
        return show::print(serde_json::to_string_pretty(&outcome.json()).or_work()?);
    }
    outcome.show(args)
}

/// What is to be done, once the flags are known to make sense.
struct Plan {
    counting: Counting,
    model: String,
    share: Share,
    data: Option<DataSet>,
    cached: Vec<f64>,
    notes: Vec<String>,
}

impl Plan {
    fn new(args: &ProfileRunArgs, machine: &Machine) -> Result<Self, Failure> {
        let positive = |flag: &str, value: f64| match value > 0.0 && value < MOST {
            true => Ok(value),
            false => Err(Failure::request(format!(
                "{flag}: found {value}, expected a number above 0 and below {MOST:e}"
            ))),
        };
        positive("--seconds", args.seconds)?;
        positive("--patience", args.patience)?;
        positive("--gpus", args.gpus.into())?;
        let all = machine.cpus();
        if let Some(wrong) = args.cpus.iter().find(|c| !(1..=all).contains(*c)) {
            return Err(Failure::request(format!(
                "--cpus: found {wrong}, expected numbers from 1 to {all}, the CPUs of this machine"
            )));
        }
        let counting = match (&args.pattern, &args.progress) {
            (Some(pattern), _) => {
                let regex = regex_lite::Regex::new(pattern);
                let bad = |e| Failure::request(format!("--pattern: {e} in {pattern:?}"));
                Counting::Pattern(regex.map_err(bad)?)
            }
            (None, Some(path)) => Counting::File(path.clone()),
            (None, None) => Counting::Lines,
        };
        let mut notes = Vec::new();
        let data = match (args.dataset_gb, args.epoch_iterations) {
            (Some(gb), Some(iterations)) => {
                let memory_gbps = match args.mem_gbps {
                    Some(given) => positive("--mem-gbps", given)?,
                    None => {
                        let found = memory_gbps();
                        notes.push(format!(
                            "memory is read at {found:.1} GB/s (measured, one thread)"
                        ));
                        found
                    }
                };
                notes.push(format!(
                    "the disk is taken to give {} MB/s (--disk-mbps)",
                    significant(args.disk_mbps)
                ));
                Some(DataSet {
                    gb: positive("--dataset-gb", gb)?,
                    epoch_iterations: positive("--epoch-iterations", iterations)?,
                    disk_mbps: positive("--disk-mbps", args.disk_mbps)?,
                    memory_gbps,
                })
            }
            _ => None,
        };
        let mut cached: Vec<f64> = args.cache.iter().map(|percent| percent / 100.0).collect();
        if cached.is_empty() || cached.iter().any(|share| !(0.0..=1.0).contains(share)) {
            return Err(Failure::request("--cache: expected percentages from 0 to 100"));
        }
        cached.sort_by(f64::total_cmp);
        cached.dedup();
        let gpus = f64::from(args.gpus);
        let most = args.cpus.iter().copied().max().unwrap_or(all);
        let share_cpus = positive("--share-cpus", args.share_cpus.unwrap_or(f64::from(most) / gpus))?;
        let share_gb = positive("--share-gb", args.share_gb.unwrap_or(machine.memory_gb / gpus))?;
        let plan = Self {
            counting,
            model: args.model.clone().unwrap_or_else(|| base_name(&args.command[0])),
            share: Share::new(
                (share_cpus * 1000.0).round() as u32,
                (share_gb * 1024.0).round() as u64,
            ),
            data,
            cached,
            notes,
        };
        plan.known_table(args)?;
        Ok(plan)
    }

    /// The table that is to be added to; looked at before anything is measured.
    fn known_table(&self, args: &ProfileRunArgs) -> Result<Option<SensitivityTable>, Failure> {
        let Some(path) = args.out.as_ref().filter(|path| path.exists()) else {
            return Ok(None);
        };
        let table = SensitivityTable::read(path).or_request()?;
        if table.share != self.share {
            let text = |share: Share| {
                format!(
                    "{} CPUs and {:.1} GB",
                    f64::from(share.cpu_milli) / 1000.0,
                    share.memory_mib as f64 / 1024.0
                )
            };
            return Err(Failure::request(format!(
                "{}: speed is 1 there at {} beside each GPU, here at {}; give the same with --share-cpus and --share-gb, \
                 or another file",
                path.display(),
                text(table.share),
                text(self.share)
            )));
        }
        Ok(Some(table))
    }

    fn table_with(
        &self,
        args: &ProfileRunArgs,
        profile: SensitivityProfile,
    ) -> Result<SensitivityTable, Failure> {
        let name = args.out.as_deref().and_then(Path::file_stem);
        let mut table = self.known_table(args)?.unwrap_or_else(|| SensitivityTable {
            name: name.map_or_else(|| "measured".to_owned(), |n| n.to_string_lossy().into_owned()),
            share: self.share,
            rows: Vec::new(),
        });
        table
            .rows
            .retain(|row| row.model != profile.model || row.gpus != profile.gpus);
        table.rows.push(profile);
        Ok(table)
    }

    /// Everything that follows from the measured points.
    fn outcome(
        &self,
        args: &ProfileRunArgs,
        points: Vec<(u32, Seen)>,
        ended: String,
    ) -> Result<Outcome, Failure> {
        let memory = points.iter().map(|(_, seen)| seen.memory_gb).fold(0.0, f64::max);
        let curve = Curve {
            gpus: args.gpus,
            rates: points
                .iter()
                .map(|(cpus, seen)| (*cpus, seen.measured.rate))
                .collect(),
            working_gb: memory.max(0.01),
            data: self.data,
            cached: self.cached.clone(),
        };
        let top = points
            .iter()
            .map(|(_, seen)| seen.measured.rate)
            .fold(0.0, f64::max);
        let at_share = curve.sensitivity(top).or_work()?.rate(self.share).factor();
        let full = top * at_share;
        let sensitivity = curve.sensitivity(full).or_work()?;
        let mut notes = self.notes.clone();
        notes.push(ended);
        let early = points.iter().filter(|(_, seen)| seen.ended_early).count();
        if early > 0 {
            notes.push(format!(
                "the command ended by itself before the time was over, {early} times"
            ));
        }
        Ok(Outcome {
            profile: SensitivityProfile {
                model: self.model.clone(),
                gpus: args.gpus,
                gpu_type: None,
                iteration_s: Some(1.0 / full),
                stated: None,
                sensitivity: Arc::new(sensitivity),
            },
            points,
            curve,
            full,
            notes,
        })
    }
}

fn base_name(command: &str) -> String {
    let name = Path::new(command).file_stem();
    name.map_or_else(|| command.to_owned(), |n| n.to_string_lossy().into_owned())
}

/// Measures one point after the other; the first one twice, as the first run warms caches up. Says why it stopped.
fn measure(
    args: &ProfileRunArgs,
    plan: &Plan,
    machine: &Machine,
) -> Result<(Vec<(u32, Seen)>, String), Failure> {
    let trial = Trial {
        command: &args.command,
        counting: &plan.counting,
        watch: Duration::from_secs_f64(args.seconds),
        patience: Duration::from_secs_f64(args.patience),
    };
    let mut given = args.cpus.clone();
    given.sort_unstable_by(|a, b| b.cmp(a));
    given.dedup();
    let mut walk = Walk::new(machine.cpus(), args.gpus);
    let mut points: Vec<(u32, Seen)> = Vec::new();
    let bar = progress::bar(0, "measuring", args.quiet);
    loop {
        let next = match given.is_empty() {
            true => walk.next(),
            false => given.get(points.len()).copied(),
        };
        let Some(cpus) = next else { break };
        let bound = machine
            .choose(cpus)
            .ok_or_else(|| Failure::request("too many CPUs"))?;
        if points.is_empty() {
            bar.set_message(format!("warming up on {cpus} CPUs"));
            trial.run(&bound).or_work()?;
        }
        bar.set_message(format!("measuring on {cpus} CPUs"));
        let seen = trial.run(&bound).or_work()?;
        walk.measured(cpus, seen.measured.rate);
        points.push((cpus, seen));
        bar.set_position(points.len() as u64);
    }
    bar.finish_and_clear();
    let ended = match given.is_empty() {
        true => format!("{} points were enough: {}", points.len(), walk.ended),
        false => format!("{} points, as asked for", points.len()),
    };
    points.sort_by_key(|(cpus, _)| std::cmp::Reverse(*cpus));
    Ok((points, ended))
}

/// What came out.
struct Outcome {
    profile: SensitivityProfile,
    points: Vec<(u32, Seen)>,
    curve: Curve,
    /// Iterations a second at speed 1.
    full: f64,
    notes: Vec<String>,
}

impl Outcome {
    fn show(&self, args: &ProfileRunArgs) -> Result<(), Failure> {
        let mut table = show::table(&["CPUs", "iterations/s", "95 %", "speed", ""]);
        let top = self
            .points
            .iter()
            .map(|(_, s)| s.measured.rate)
            .fold(0.0, f64::max);
        for (cpus, seen) in &self.points {
            let m = &seen.measured;
            table.add_row([
                cpus.to_string(),
                significant(m.rate),
                format!("± {}", significant(m.plus_minus)),
                format!("{:.2}", m.rate / self.full),
                "█".repeat((m.rate / top * 40.0).round() as usize),
            ]);
        }
        show::align_numbers(&mut table);
        if let Some(bars) = table.column_mut(4) {
            bars.set_cell_alignment(comfy_table::CellAlignment::Left);
        }
        show::print(table)?;
        if self.curve.data.is_some() {
            show::print(self.memory_table())?;
        }
        for note in self.notes.iter().filter(|_| !args.quiet) {
            eprintln!("note: {note}");
        }
        let ideal = self.profile.sensitivity.ideal();
        show::print(format!(
            "{} on {} GPU{}: fastest from {} CPUs and {} GB beside each GPU on, {:.2} times as fast as at speed 1",
            self.profile.model,
            self.profile.gpus,
            if self.profile.gpus == 1 { "" } else { "s" },
            f64::from(ideal.cpu_milli) / 1000.0,
            significant(ideal.memory_mib as f64 / 1024.0),
            self.profile.sensitivity.top().factor()
        ))?;
        match &args.out {
            Some(path) => show::print(format!("table: {0} (--sensitivity {0})", path.display())),
            None => show::print("give --out FILE to keep it as a table for --sensitivity"),
        }
    }

    /// Speed over CPUs (down) and memory beside each GPU (across).
    fn memory_table(&self) -> comfy_table::Table {
        let gpus = f64::from(self.profile.gpus);
        let grid = self.curve.grid();
        let amounts = grid.first().map(|(_, row)| row.as_slice()).unwrap_or_default();
        let mut headings = vec!["CPUs \\ GB".to_owned()];
        headings.extend(amounts.iter().map(|(gb, _)| format!("{:.0}", gb / gpus)));
        let mut table = show::table(&headings.iter().map(String::as_str).collect::<Vec<_>>());
        for (cpus, row) in grid.iter().rev() {
            let speeds = row.iter().map(|(_, rate)| format!("{:.2}", rate / self.full));
            table.add_row(
                std::iter::once(cpus.to_string())
                    .chain(speeds)
                    .collect::<Vec<_>>(),
            );
        }
        show::align_numbers(&mut table);
        table
    }

    /// Rates over CPUs as measured, or over memory for each number of CPUs where data is read.
    fn figure(&self) -> dovetail_report::Figure {
        let by_memory = self.curve.data.is_some();
        let caption = match by_memory {
            true => {
                "Measured at each number of CPUs; memory by arithmetic: what is not cached comes from disk."
            }
            false => "The command bound to so many CPUs, with 95 % confidence intervals.",
        };
        LineChart {
            name: "profile",
            title: &format!(
                "{}: speed over {}",
                self.profile.model,
                if by_memory { "memory" } else { "CPUs" }
            ),
            caption,
            x_label: if by_memory { "GB of memory" } else { "CPUs" },
            y_label: "iterations/s",
            ..LineChart::default()
        }
        .draw(&if by_memory {
            self.over_memory()
        } else {
            self.over_cpus()
        })
    }

    fn over_memory(&self) -> Vec<Series> {
        let grid = self.curve.grid();
        let name = |cpus: u32| format!("{cpus} CPU{}", if cpus == 1 { "" } else { "s" });
        grid.into_iter()
            .rev()
            .map(|(cpus, row)| Series::new(name(cpus), row))
            .collect()
    }

    fn over_cpus(&self) -> Vec<Series> {
        let mut points: Vec<_> = self
            .points
            .iter()
            .map(|(cpus, seen)| (f64::from(*cpus), seen.measured))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let errors = points
            .iter()
            .map(|(_, m)| (m.rate - m.plus_minus, m.rate + m.plus_minus));
        let rates = points.iter().map(|(cpus, m)| (*cpus, m.rate));
        vec![Series::new("measured", rates).with_errors(errors)]
    }

    fn json(&self) -> Value {
        let point = |(cpus, seen): &(u32, Seen)| {
            let m = &seen.measured;
            json!({
                "cpus": cpus, "rate": m.rate, "plus_minus": m.plus_minus, "speed": m.rate / self.full,
                "iterations": m.iterations, "seconds": m.seconds, "memory_gb": seen.memory_gb,
                "ended_early": seen.ended_early,
            })
        };
        json!({
            "model": self.profile.model, "gpus": self.profile.gpus,
            "points": self.points.iter().map(point).collect::<Vec<_>>(),
            "iteration_s": self.profile.iteration_s,
            "sensitivity": self.profile.sensitivity.points(),
            "notes": self.notes,
        })
    }
}
