//! Solves the same programs with HiGHS, through `good_lp`, as a reference.
//!
//! HiGHS computes in floating point and stops at a time limit. Gain and weight of its solution are recomputed in integers,
//! so that its tolerances can neither improve a solution nor let it exceed the capacities.

use std::time::Duration;

use dovetail_solve::choice::pack::Bin;
use dovetail_solve::choice::{Choice, Kind, Point};
use good_lp::{
    Expression, ProblemVariables, ResolutionError, Solution, SolutionStatus, SolverModel, Variable,
    constraint, highs, variable,
};

/// The result of HiGHS for a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HighsResult {
    /// Gain of its solution.
    pub(crate) gain: u64,
    /// Whether the solution is proven optimal.
    pub(crate) proven: bool,
}

/// Solves the program of [`dovetail_solve::choice::choose`]; `None` if the floors do not fit, or no solution was found in time.
///
/// # Panics
/// If the solution is not valid.
pub(crate) fn choose(kinds: &[Kind], capacity: [u64; 2], limit: Duration) -> Option<HighsResult> {
    let mut vars = ProblemVariables::new();
    let chosen = columns(&mut vars, kinds, true);
    let mut model = vars
        .maximise(gains(kinds, &chosen))
        .using(highs)
        .set_threads(1)
        .set_time_limit(limit.as_secs_f64())
        .set_mip_rel_gap(0.0)
        .and_then(|m| m.set_mip_abs_gap(0.5))
        .expect("no gap is negative");
    for row in rows(kinds, &chosen, capacity) {
        model.add_constraint(row);
    }
    let found = solution(model.solve())?;
    let counts = |vars: &Vec<Variable>| vars.iter().map(|v| found.value(*v).round() as u32).collect();
    let counts: Vec<Vec<u32>> = chosen.iter().map(counts).collect();
    let whole = |(kind, counts): (&Kind, &Vec<u32>)| counts.iter().sum::<u32>() == kind.count;
    assert!(kinds.iter().zip(&counts).all(whole), "every item has one point");
    let each = kinds
        .iter()
        .zip(&counts)
        .flat_map(|(kind, counts)| kind.points.iter().zip(counts));
    let (mut gain, mut taken) = (0, [0; 2]);
    for (point, count) in each {
        gain += point.gain * u64::from(*count);
        (0..2).for_each(|d| taken[d] += point.weight[d] * u64::from(*count));
    }
    assert!(
        (0..2).all(|d| taken[d] <= capacity[d]),
        "{taken:?} of {capacity:?}"
    );
    Some(HighsResult {
        gain,
        proven: !matches!(found.status(), SolutionStatus::TimeLimit),
    })
}

/// The optimum of the linear program of [`dovetail_solve::choice::choose`]: parts of items may have different points.
pub(crate) fn bound(kinds: &[Kind], capacity: [u64; 2]) -> Option<f64> {
    let mut vars = ProblemVariables::new();
    let chosen = columns(&mut vars, kinds, false);
    let objective = gains(kinds, &chosen);
    let mut model = vars.maximise(objective.clone()).using(highs).set_threads(1);
    for row in rows(kinds, &chosen, capacity) {
        model.add_constraint(row);
    }
    solution(model.solve()).map(|found| found.eval(objective))
}

/// Synergy's second phase: whether the chosen points fit into the bins if parts of an item may be in different bins.
pub(crate) fn spreads(kinds: &[Kind], slots: &[u32], choice: &Choice, bins: &[Bin]) -> bool {
    let mut vars = ProblemVariables::new();
    let mut inside: Vec<[Expression; 3]> = bins.iter().map(|_| Default::default()).collect();
    let mut whole = Vec::new();
    for (k, counts) in choice.chosen.iter().enumerate() {
        for (point, count) in kinds[k]
            .points
            .iter()
            .zip(counts)
            .filter(|(_, count)| **count > 0)
        {
            let mut parts = Expression::default();
            for bin in &mut inside {
                let part = vars.add(variable().min(0.0));
                parts.add_mul(1.0, part);
                bin[0].add_mul(f64::from(slots[k]), part);
                (0..2).for_each(|d| bin[d + 1].add_mul(point.weight[d] as f64, part));
            }
            whole.push(constraint!(parts == f64::from(*count)));
        }
    }
    let mut model = vars.maximise(Expression::default()).using(highs).set_threads(1);
    for row in whole {
        model.add_constraint(row);
    }
    for (bin, [used, first, second]) in bins.iter().zip(inside) {
        model.add_constraint(used.leq(f64::from(bin.slots)));
        model.add_constraint(first.leq(bin.capacity[0] as f64));
        model.add_constraint(second.leq(bin.capacity[1] as f64));
    }
    solution(model.solve()).is_some()
}

/// For each kind and point, how many items of the kind have it.
fn columns(vars: &mut ProblemVariables, kinds: &[Kind], whole: bool) -> Vec<Vec<Variable>> {
    let column = |kind: &Kind| {
        let count = variable().clamp(0.0, f64::from(kind.count));
        if whole { count.integer() } else { count }
    };
    let of = |kind: &Kind| vars.add_vector(column(kind), kind.points.len());
    kinds.iter().map(of).collect()
}

fn gains(kinds: &[Kind], chosen: &[Vec<Variable>]) -> Expression {
    sum(kinds, chosen, |point| point.gain)
}

fn sum(kinds: &[Kind], chosen: &[Vec<Variable>], of: impl Fn(&Point) -> u64) -> Expression {
    let mut sum = Expression::default();
    for (kind, chosen) in kinds.iter().zip(chosen) {
        for (point, chosen) in kind.points.iter().zip(chosen) {
            sum.add_mul(of(point) as f64, *chosen);
        }
    }
    sum
}

/// One point for each item, and no more than the capacities.
fn rows(kinds: &[Kind], chosen: &[Vec<Variable>], capacity: [u64; 2]) -> Vec<good_lp::Constraint> {
    let one_each = kinds.iter().zip(chosen).map(|(kind, chosen)| {
        let all: Expression = chosen.iter().sum();
        constraint!(all == f64::from(kind.count))
    });
    let within = (0..2).map(|d| sum(kinds, chosen, |point| point.weight[d]).leq(capacity[d] as f64));
    one_each.chain(within).collect()
}

/// # Panics
/// If the solver fails for another reason than that there is no solution, or none in time.
fn answer<S>(solved: Result<S, ResolutionError>) -> Option<S> {
    match solved {
        Ok(found) => Some(found),
        Err(ResolutionError::Infeasible | ResolutionError::Other("NoSolutionFound")) => None,
        Err(other) => panic!("HiGHS: {other}"),
    }
}
