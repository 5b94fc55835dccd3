//! `dovetail forecast`: how good forecasts of start times are.

use dovetail_console::{self as console, Failure, OrFailure};
use dovetail_experiment::{DEFAULT_POLICY, Run, RunSpec};
use dovetail_forecast::{EvaluateOptions, Evaluation, MethodResult, evaluate};
use dovetail_report::format::{count, span};

use crate::args::{EvaluateArgs, ForecastArgs, ForecastCommand};
use crate::experiment::{failure, print_notice};

/// Runs a command of `dovetail forecast`.
///
/// # Errors
/// If the request is invalid, or the simulation failed.
pub fn run(args: ForecastArgs) -> Result<(), Failure> {
    match args.command {
        ForecastCommand::Evaluate(args) => evaluate_trace(*args),
    }
}

fn evaluate_trace(args: EvaluateArgs) -> Result<(), Failure> {
    let spec = args.run.over(RunSpec::default());
    let policy = args.policy.as_deref().unwrap_or(DEFAULT_POLICY);
    let run = Run::new(policy, &spec, &mut |notice| {
        if !args.quiet {
            print_notice(&notice);
        }
    });
    let run = run.map_err(failure)?;
    let options = EvaluateOptions {
        coverage: f64::from(args.interval) / 100.0,
        forecasts: args.forecasts as usize,
        samples: args.simulations,
        seed: run.config.seed,
        ..EvaluateOptions::default()
    };
    let bar = console::progress_bar(args.forecasts.into(), &run.policy.name, args.quiet);
    let result = evaluate(
        &run.workload,
        &run.policy,
        run.needs,
        &run.config,
        &options,
        &mut |made| bar.set_position(made),
    );
    bar.finish_and_clear();
    let evaluation = result.map_err(|error| failure(error.into()))?;
    if args.json {
        return console::print(serde_json::to_string_pretty(&evaluation).or_work()?);
    }
    console::print(table(&evaluation, args.interval))
}

/// Returns the result as a table: one line for each way to forecast.
fn table(evaluation: &Evaluation, interval: u32) -> String {
    let mut table = console::table(&["interval", "contains", "too early", "too late", "median width"]);
    let mut row = |name: &str, result: &MethodResult| {
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        table.add_row([
            name.to_owned(),
            percent(result.coverage),
            percent(result.early),
            percent(result.late),
            span(result.median_width_s),
        ]);
    };
    row("forecast", &evaluation.forecast);
    row("forecast, uncorrected", &evaluation.uncorrected);
    row("past waits", &evaluation.past_waits);
    row("past waits, corrected", &evaluation.past_waits_corrected);
    format!(
        "{}, {} on {} GPUs: {} of {} jobs wait; {} forecasts, median wait {}; intervals of {interval} %\n{table}\n\
         width: {:.2} of past waits, {:.2} of corrected past waits",
        evaluation.trace,
        evaluation.policy,
        evaluation.gpus,
        count(evaluation.waiting as u64),
        count(evaluation.jobs as u64),
        count(evaluation.forecasts as u64),
        span(evaluation.median_wait_s),
        evaluation.width_ratio,
        evaluation.width_ratio_corrected,
    )
}
