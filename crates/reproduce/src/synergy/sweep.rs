//! `reproduce synergy-load`, `synergy-split` and `synergy-cpu-ratio`: the gain of `tune` over one parameter.

use comfy_table::Table;
use dovetail_console as console;
use dovetail_model::ClusterSpec;
use dovetail_report::Figure;
use dovetail_report::figures::{BarSeries, Series, grouped_bars, lines};
use dovetail_workload::Workload;
use rayon::prelude::*;
use serde_json::{Value, json};

use super::runs::{cluster, exact, join_sensitivity, possible_gain, read_jobs, with_split};
use super::{SIZINGS, is_behind, percent_longer};
use crate::data::data_folder;
use crate::{Options, Report, ReproduceError, Statement};

/// Policies of the sweeps.
const POLICIES: [&str; 3] = ["fifo", "srtf", "las"];
/// Jobs that the averages are computed over.
const WINDOW: (u32, u32) = (100, 299);
/// Jobs per hour of the sweep over load.
const LOADS: [f64; 5] = [6.0, 8.0, 10.0, 12.0, 14.0];
/// Image, language and speech models, in percent.
const SPLITS: [[u32; 3]; 4] = [[20, 70, 10], [33, 33, 33], [50, 0, 50], [60, 30, 10]];

/// One value of the parameter, with its workload and cluster.
struct SweepSetting {
    x: f64,
    label: String,
    workload: Workload,
    cluster: ClusterSpec,
}

/// One policy at one value of the parameter.
struct Point {
    x: f64,
    label: String,
    policy: &'static str,
    /// Average JCT with each sizing, in hours.
    jct_h: [f64; 3],
}

impl Point {
    /// Returns the JCT with proportional shares over that of `tune`.
    fn gain(&self) -> f64 {
        self.jct_h[0] / self.jct_h[2]
    }

    /// Returns the better JCT of the other two sizings, in hours.
    fn best_other_h(&self) -> f64 {
        self.jct_h[0].min(self.jct_h[1])
    }
}

/// The parameter of a sweep.
enum Axis {
    /// A number with this label.
    Numbers(&'static str),
    /// Named settings without an order.
    Names,
}

/// A sweep over one parameter.
struct Sweep {
    name: &'static str,
    axis: Axis,
    /// Statement of the paper.
    published: &'static str,
    /// By how much faster jobs would be with all the CPU and memory they can use.
    possible_gain: f64,
    points: Vec<Point>,
}

/// Average JCT by jobs per hour.
pub(crate) fn load(options: &Options) -> Result<Report, ReproduceError> {
    let cluster = cluster(4, 3);
    let base = generated_jobs(options, &cluster)?;
    let mut settings = Vec::new();
    for rate in LOADS {
        let mut workload = base.clone();
        workload.rescale_rate(rate)?;
        settings.push(SweepSetting {
            x: rate,
            label: format!("{rate} jobs/h"),
            workload,
            cluster: cluster.clone(),
        });
    }
    let published = "published: a factor of up to 3.4 on 128 and 512 GPUs, past saturation, over thousands of jobs; this is 32 GPUs";
    let sweep = Sweep::run("load", Axis::Numbers("jobs per hour"), published, &settings)?;
    let mean_gain = |rate: f64| {
        let gains = || sweep.points.iter().filter(|p| p.x == rate).map(Point::gain);
        gains().sum::<f64>() / gains().count().max(1) as f64
    };
    let (low, high) = (LOADS[0], LOADS[LOADS.len() - 1]);
    let most = sweep.points.iter().map(Point::gain).fold(0.0, f64::max);
    let text = format!(
        "tune gains a factor of {:.2} at {low} jobs per hour and {:.2} at {high}, mean of three policies; at most {most:.2}",
        mean_gain(low),
        mean_gain(high),
    );
    let holds = mean_gain(high) > mean_gain(low);
    Ok(sweep.report(Statement::new(text, holds)))
}

/// Average JCT by mix of models.
pub(crate) fn split(options: &Options) -> Result<Report, ReproduceError> {
    let cluster = cluster(4, 3);
    let base = generated_jobs(options, &cluster)?;
    let settings: Vec<SweepSetting> = SPLITS
        .iter()
        .enumerate()
        .map(|(i, split)| SweepSetting {
            x: i as f64,
            label: format!("{}-{}-{}", split[0], split[1], split[2]),
            workload: with_split(&base, *split, &cluster),
            cluster: cluster.clone(),
        })
        .collect();
    let published = "published as a figure without numbers; without jobs of low CPU demand (50-0-50) there is no CPU to spare";
    let sweep = Sweep::run("split", Axis::Names, published, &settings)?;
    let gains = || sweep.points.iter().map(Point::gain);
    let (least, most) = (gains().fold(f64::MAX, f64::min), gains().fold(0.0, f64::max));
    let text =
        format!("tune is ahead of proportional with every split, by a factor of {least:.2} to {most:.2}");
    Ok(sweep.report(Statement::new(text, least >= 1.0)))
}

/// Average JCT by CPUs per GPU.
pub(crate) fn cpu_ratio(options: &Options) -> Result<Report, ReproduceError> {
    let three = cluster(4, 3);
    let base = with_split(&generated_jobs(options, &three)?, SPLITS[0], &three);
    let settings = [3, 4, 5, 6].map(|cpus| {
        let cluster = cluster(4, cpus);
        let mut workload = base.clone();
        join_sensitivity(&mut workload, &cluster);
        SweepSetting {
            x: f64::from(cpus),
            label: format!("{cpus} CPUs per GPU"),
            workload,
            cluster,
        }
    });
    let published = "published as a figure without numbers";
    let sweep = Sweep::run("cpu-ratio", Axis::Numbers("CPUs per GPU"), published, &settings)?;
    let gain = |x: f64, policy: &str| {
        let point = sweep.points.iter().find(|p| p.x == x && p.policy == policy);
        point.map_or(f64::NAN, Point::gain)
    };
    let holds = POLICIES
        .iter()
        .all(|policy| gain(3.0, policy) > gain(6.0, policy));
    let text = format!(
        "the more CPUs per GPU, the less tune gains: fifo a factor of {:.2} with 3, {:.2} with 6",
        gain(3.0, "fifo"),
        gain(6.0, "fifo")
    );
    Ok(sweep.report(Statement::new(text, holds)))
}

/// Reads the 500 jobs with one GPU each that Synergy's generator made.
fn generated_jobs(options: &Options, cluster: &ClusterSpec) -> Result<Workload, ReproduceError> {
    let path = data_folder(options, "synergy")?.join("outputs/phS32_SRTF_tune.jobs.csv");
    read_jobs(&path, cluster)
}

impl Sweep {
    /// Runs all policies with every sizing on all settings.
    fn run(
        name: &'static str,
        axis: Axis,
        published: &'static str,
        settings: &[SweepSetting],
    ) -> Result<Self, ReproduceError> {
        let grid: Vec<_> = settings
            .iter()
            .flat_map(|setting| POLICIES.map(|policy| (setting, policy)))
            .collect();
        let points = grid
            .par_iter()
            .map(|(setting, policy)| {
                let mut jct_h = [0.0; 3];
                for (jct, sizing) in jct_h.iter_mut().zip(SIZINGS) {
                    let record = exact(&setting.workload, &setting.cluster, policy, sizing, Some(WINDOW))?;
                    *jct = record.summary.avg_jct_s / 3600.0;
                }
                Ok(Point {
                    x: setting.x,
                    label: setting.label.clone(),
                    policy,
                    jct_h,
                })
            })
            .collect::<Result<Vec<Point>, ReproduceError>>()?;
        Ok(Self {
            name,
            axis,
            published,
            possible_gain: possible_gain(&settings[0].workload),
            points,
        })
    }

    fn report(&self, statement: Statement) -> Report {
        Report {
            table: self.table(),
            statements: vec![statement],
            notes: self.notes(),
            figures: vec![self.figure()],
            data: self.points.iter().map(point_json).collect(),
        }
    }

    fn table(&self) -> Table {
        let mut table = console::table(&[
            "",
            "policy",
            "proportional, h",
            "greedy",
            "tune",
            "proportional ÷ tune",
        ]);
        for point in &self.points {
            let mut row = vec![point.label.clone(), point.policy.to_owned()];
            row.extend(point.jct_h.map(|hours| format!("{hours:.3}")));
            row.push(format!("{:.2}", point.gain()));
            table.add_row(row);
        }
        console::align_numbers(&mut table);
        table
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = vec![self.published.to_owned()];
        notes.push(format!(
            "jobs {} to {} of the 500 that Synergy's generator made, one GPU each, on 32 GPUs; with all the CPU and memory \
             they can use they would be {:.2} times as fast",
            WINDOW.0, WINDOW.1, self.possible_gain
        ));
        let behind: Vec<String> = self
            .points
            .iter()
            .filter(|point| is_behind(point.jct_h[2], point.best_other_h()))
            .map(|point| {
                let longer = percent_longer(point.jct_h[2], point.best_other_h());
                format!("{} with {} by {longer:.1} %", point.policy, point.label)
            })
            .collect();
        if !behind.is_empty() {
            notes.push(format!(
                "tune is behind proportional or greedy for {}",
                behind.join(", ")
            ));
        }
        notes
    }

    /// Draws average JCTs with proportional shares and with `tune`, as lines over numbers or as bars over names.
    fn figure(&self) -> Figure {
        let points = |policy: &'static str| self.points.iter().filter(move |p| p.policy == policy);
        let all_series = || {
            POLICIES
                .into_iter()
                .flat_map(|policy| [(policy, 0, "proportional"), (policy, 2, "tune")])
        };
        let title = format!("Synergy: {}", self.name);
        let mut figure = match self.axis {
            Axis::Numbers(label) => {
                let line = |(policy, sizing, name): (&'static str, usize, &str)| {
                    let values = points(policy).map(|p| (p.x, p.jct_h[sizing]));
                    Series::new(format!("{policy} {name}"), values)
                };
                let series: Vec<Series> = all_series().map(line).collect();
                lines(&title, label, "average JCT, h", &series)
            }
            Axis::Names => {
                let bars = |(policy, sizing, name): (&'static str, usize, &str)| {
                    let values = points(policy).map(|p| Some(p.jct_h[sizing]));
                    BarSeries::ours(format!("{policy} {name}"), values)
                };
                let series: Vec<BarSeries> = all_series().map(bars).collect();
                let groups: Vec<&str> = points("fifo").map(|p| p.label.as_str()).collect();
                grouped_bars(&title, "average JCT, h", &groups, &series)
            }
        };
        figure.name = format!("synergy-{}", self.name);
        figure
    }
}

fn point_json(point: &Point) -> Value {
    json!({
        "x": point.x, "label": point.label, "policy": point.policy, "proportional_h": point.jct_h[0],
        "greedy_h": point.jct_h[1], "tune_h": point.jct_h[2],
    })
}
