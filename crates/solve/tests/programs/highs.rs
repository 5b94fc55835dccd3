//! The same programs for another solver, to check ours against: HiGHS, through `good_lp`.
//!
//! It counts in floating point, and its limit is a time. What it finds is counted again in whole numbers, so that a
//! tolerance of its own can neither make an answer better than it is nor too heavy.

use std::time::Duration;

use dovetail_solve::choice::pack::Bin;
use dovetail_solve::choice::{Choice, Kind, Point};
use good_lp::{
    Expression, ProblemVariables, ResolutionError, Solution, SolutionStatus, SolverModel, Variable,
    constraint, highs, variable,
};

/// What another solver says of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// What its answer brings.
    pub(crate) gain: u64,
    /// Whether it says that none brings more.
    pub(crate) proven: bool,
}

/// The program of [`dovetail_solve::choice::choose`]; none where the floors do not fit, or where nothing was found in time.
///
/// # Panics
/// When what it found is not an answer.
pub(crate) fn choose(kinds: &[Kind], capacity: [u64; 2], limit: Duration) -> Option<Found> {
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
    let found = answer(model.solve())?;
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
    Some(Found {
        gain,
        proven: !matches!(found.status(), SolutionStatus::TimeLimit),
    })
}

/// What the linear program of [`dovetail_solve::choice::choose`] says: parts of items may have different points.
pub(crate) fn bound(kinds: &[Kind], capacity: [u64; 2]) -> Option<f64> {
    let mut vars = ProblemVariables::new();
    let chosen = columns(&mut vars, kinds, false);
    let objective = gains(kinds, &chosen);
    let mut model = vars.maximise(objective.clone()).using(highs).set_threads(1);
    for row in rows(kinds, &chosen, capacity) {
        model.add_constraint(row);
    }
    answer(model.solve()).map(|found| found.eval(objective))
}

/// Synergy's second phase: whether the chosen points fit into the bins if parts of an item may lie in different ones.
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
    answer(model.solve()).is_some()
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
/// When the solver fails for a reason other than that there is no answer, or none in time.
fn answer<S>(solved: Result<S, ResolutionError>) -> Option<S> {
    match solved {
        Ok(found) => Some(found),
        Err(ResolutionError::Infeasible | ResolutionError::Other("NoSolutionFound")) => None,
        Err(other) => panic!("HiGHS: {other}"),
    }
}
