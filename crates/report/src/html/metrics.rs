//! The metrics of the comparison: value, format, direction and definition of each.

use dovetail_model::run::Summary;

use crate::svg::escape;

/// How a metric is formatted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Show {
    /// Seconds, in a unit that fits the whole column.
    Time,
    /// A factor.
    Times,
    /// Two or three decimals.
    Number,
    /// A share.
    Percent,
    /// A whole number.
    Count,
}

/// Which of two values is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Better {
    Lower,
    Higher,
}

/// One column.
pub(crate) struct Metric {
    pub(crate) head: &'static str,
    pub(crate) definition: &'static str,
    pub(crate) show: Show,
    pub(crate) better: Better,
    pub(crate) value: fn(&Summary) -> Option<f64>,
}

/// All columns, in order.
pub(crate) const METRICS: [Metric; 18] = [
    Metric {
        head: "avg JCT",
        definition: "Job completion time, from submission to the end, averaged over the jobs that finished.",
        show: Show::Time,
        better: Better::Lower,
        value: |s| of_finished(s, s.avg_jct_s),
    },
    Metric {
        head: "over bound",
        definition: "Average JCT divided by the lower bound of any schedule of these jobs on as many GPUs, if every job is rigid and has exclusive GPUs. \
                     1.00× would be perfect; the bound itself may be out of reach.",
        show: Show::Times,
        better: Better::Lower,
        value: |s| {
            (s.lower_bound_avg_jct_s > 0.0 && s.finished > 0).then(|| s.avg_jct_s / s.lower_bound_avg_jct_s)
        },
    },
    Metric {
        head: "median",
        definition: "Half of the jobs completed within this time.",
        show: Show::Time,
        better: Better::Lower,
        value: |s| of_finished(s, s.median_jct_s),
    },
    Metric {
        head: "p95",
        definition: "95 of 100 jobs completed within this time.",
        show: Show::Time,
        better: Better::Lower,
        value: |s| of_finished(s, s.p95_jct_s),
    },
    Metric {
        head: "p99",
        definition: "99 of 100 jobs completed within this time.",
        show: Show::Time,
        better: Better::Lower,
        value: |s| of_finished(s, s.p99_jct_s),
    },
    Metric {
        head: "avg wait",
        definition: "Time a job was submitted but held no GPUs, before its first start and between preemptions.",
        show: Show::Time,
        better: Better::Lower,
        value: |s| of_finished(s, s.avg_wait_s),
    },
    Metric {
        head: "makespan",
        definition: "From the first submission to the last completion.",
        show: Show::Time,
        better: Better::Lower,
        value: |s| of_finished(s, s.makespan_s),
    },
    Metric {
        head: "slowdown",
        definition: "JCT divided by the run time of the job alone, averaged over jobs; 1 means that no job waited.",
        show: Show::Number,
        better: Better::Lower,
        value: |s| of_finished(s, s.avg_slowdown),
    },
    Metric {
        head: "utilisation",
        definition: "GPU time in use divided by GPU time available.",
        show: Show::Percent,
        better: Better::Higher,
        value: |s| Some(s.gpu_utilization),
    },
    Metric {
        head: "queue",
        definition: "Jobs waiting, averaged over time.",
        show: Show::Number,
        better: Better::Lower,
        value: |s| (s.jobs > 0).then_some(s.avg_queue_length),
    },
    Metric {
        head: "blocking",
        definition: "Blocking index: time that queued jobs have waited divided by their remaining run time, averaged over \
                     the waiting jobs and then over time. Short jobs that wait long make it large.",
        show: Show::Number,
        better: Better::Lower,
        value: |s| (s.jobs > 0).then_some(s.blocking_index),
    },
    Metric {
        head: "preemptions",
        definition: "How often a job was stopped while it still had work to do.",
        show: Show::Count,
        better: Better::Lower,
        value: |s| Some(s.preemptions as f64),
    },
    Metric {
        head: "worst ρ",
        definition: "Finish-time fairness: a job's JCT over the JCT it would have had alone on its 1/n share of the \
                     cluster; the largest of all jobs. Above 1 a job was worse off for sharing.",
        show: Show::Number,
        better: Better::Lower,
        value: |s| (s.worst_ftf > 0.0).then_some(s.worst_ftf),
    },
    Metric {
        head: "p95 ρ",
        definition: "95 of 100 jobs had a finish-time fairness ρ of no more than this.",
        show: Show::Number,
        better: Better::Lower,
        value: |s| (s.p95_ftf > 0.0).then_some(s.p95_ftf),
    },
    Metric {
        head: "avg ρ",
        definition: "Finish-time fairness ρ, averaged over the jobs that finished.",
        show: Show::Number,
        better: Better::Lower,
        value: |s| (s.avg_ftf > 0.0).then_some(s.avg_ftf),
    },
    Metric {
        head: "ρ above 1",
        definition: "Share of jobs that were worse off than on an equal share of the cluster.",
        show: Show::Percent,
        better: Better::Lower,
        value: |s| (s.worst_ftf > 0.0).then_some(s.unfair_share),
    },
    Metric {
        head: "Jain",
        definition: "Jain's fairness index over the jobs' inverse slowdowns: 1 means all were slowed down equally.",
        show: Show::Number,
        better: Better::Higher,
        value: |s| (s.jain_index > 0.0).then_some(s.jain_index),
    },
    Metric {
        head: "unfinished",
        definition: "Jobs that had not finished when the run ended; averages exclude them.",
        show: Show::Count,
        better: Better::Lower,
        value: |s| Some(s.jobs.saturating_sub(s.finished) as f64),
    },
];

fn of_finished(summary: &Summary, value: f64) -> Option<f64> {
    (summary.finished > 0).then_some(value)
}

/// Returns the section that explains the columns.
pub(crate) fn definitions() -> String {
    let line = |m: &Metric| format!("<dt>{}</dt><dd>{}</dd>\n", escape(m.head), escape(m.definition));
    format!(
        "<dl class=\"terms\">\n{}</dl>",
        METRICS.iter().map(line).collect::<String>()
    )
}
