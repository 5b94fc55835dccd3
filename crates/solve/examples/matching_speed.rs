//! Measures the CPU time of the matching algorithms on one thread, and the loss of the inexact ones.
//!
//! `cargo run --release -p dovetail-solve --example matching_speed`

#![allow(clippy::print_stdout)]

use std::time::Instant;

use dovetail_solve::matching::{Pruning, by_type, greedy, maximum_weight, pruned, verify};

/// Models and GPU counts, as in the traces of interleaving schedulers.
const MODELS: usize = 8;
const SIZES: usize = 6;

fn main() {
    println!("complete graphs, weights uniform in 1..=1,000,000; times in ms of CPU");
    header("n  exact  pruned(10)  rounds  greedy  greedy/optimum  pruned/optimum");
    for n in [100, 200, 500, 1000, 2000] {
        let mut draw = Draw(1);
        let weights = symmetric(n, || draw.next(1_000_000) + 1);
        compare(n, &|u, v| weights[u as usize][v as usize], "");
    }
    println!(
        "\ncomplete graphs, weights from a table of {MODELS} x {SIZES} types (positive between types of the same size only)"
    );
    header("n  exact  pruned(10)  rounds  greedy  greedy/optimum  pruned/optimum  by_type");
    for n in [100, 200, 500, 1000, 2000] {
        typed(n, true);
    }
    println!(
        "\nthe same with positive weights between all {} types",
        MODELS * SIZES
    );
    header("n  exact  pruned(10)  rounds  greedy  greedy/optimum  pruned/optimum  by_type");
    for n in [100, 200, 500, 1000, 2000] {
        typed(n, false);
    }
    println!("\nby_type only, mean of 200 instances");
    header("types  n  same size only  all with all");
    for n in [1000, 10_000, 100_000] {
        let mean = |blocks| {
            let instances: Vec<_> = (0..200).map(|seed| Instance::new(n, blocks, seed)).collect();
            time(|| instances.iter().map(Instance::solve).sum::<i64>()).0 / instances.len() as f64
        };
        println!(
            "{:>5}  {n:>6}  {:.3}  {:.3}",
            MODELS * SIZES,
            mean(true),
            mean(false)
        );
    }
    println!("\npruned only, weights uniform in 1..=1,000,000 from a hash of the pair");
    header("n  pruned(10)  rounds  certified");
    for n in [5000u32, 10_000] {
        let (ms, found) = time(|| pruned(n as usize, hashed, Pruning::default()));
        println!("{n:>6}  {ms:.0}  {}  {}", found.rounds, found.certified);
    }
}

fn header(columns: &str) {
    println!("{columns}");
}

fn typed(n: usize, blocks: bool) {
    let instance = Instance::new(n, blocks, n as u64);
    let kind = &instance.kind;
    let (ms, found) = time(|| instance.solve());
    let weight = |u: u32, v: u32| instance.table[kind[u as usize]][kind[v as usize]];
    let best = compare(n, &weight, &format!("  {ms:.3}"));
    assert_eq!(found, best, "by type must be exact");
}

/// Prints one line of a table and returns the optimum.
fn compare(n: usize, weight: &dyn Fn(u32, u32) -> i64, more: &str) -> i64 {
    let mut edges = Vec::new();
    for u in 0..n as u32 {
        edges.extend((u + 1..n as u32).map(|v| (u, v, weight(u, v))));
    }
    let (exact_ms, exact) = time(|| maximum_weight(n, &edges));
    assert_eq!(verify(&edges, &exact), Ok(()));
    let (pruned_ms, few) = time(|| pruned(n, weight, Pruning::default()));
    let (greedy_ms, quick) = time(|| greedy(n, &edges));
    let part = |of: i64| of as f64 / exact.weight as f64;
    println!(
        "{n:>5}  {exact_ms:.1}  {pruned_ms:.1}  {}{}  {greedy_ms:.2}  {:.4}  {:.6}{more}",
        few.rounds,
        if few.certified { "" } else { " not certified" },
        part(quick.weight),
        part(few.weight),
    );
    exact.weight
}

struct Instance {
    kind: Vec<usize>,
    counts: Vec<u32>,
    table: Vec<Vec<i64>>,
}

impl Instance {
    fn new(n: usize, blocks: bool, seed: u64) -> Self {
        let types = MODELS * SIZES;
        let mut draw = Draw(seed + 1);
        let mut table = symmetric(types, || 300_000 + draw.next(600_000));
        if blocks {
            for (s, row) in table.iter_mut().enumerate() {
                row.iter_mut()
                    .enumerate()
                    .filter(|(t, _)| t % SIZES != s % SIZES)
                    .for_each(|(_, w)| *w = 0);
            }
        }
        let kind: Vec<usize> = (0..n).map(|_| draw.next(types as i64) as usize).collect();
        let mut counts = vec![0; types];
        for &s in &kind {
            counts[s] += 1;
        }
        Self { kind, counts, table }
    }

    fn solve(&self) -> i64 {
        by_type(&self.counts, &self.table).weight
    }
}

fn symmetric(n: usize, mut draw: impl FnMut() -> i64) -> Vec<Vec<i64>> {
    let half: Vec<Vec<i64>> = (0..n).map(|s| (0..=s).map(|_| draw()).collect()).collect();
    (0..n)
        .map(|s| (0..n).map(|t| half[s.max(t)][s.min(t)]).collect())
        .collect()
}

/// A small seeded generator.
struct Draw(u64);

impl Draw {
    fn next(&mut self, below: i64) -> i64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        (mix(self.0) % below as u64) as i64
    }
}

fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

fn hashed(u: u32, v: u32) -> i64 {
    (mix(u64::from(u) << 32 | u64::from(v)) % 1_000_000) as i64 + 1
}

/// Returns the CPU milliseconds of one run and its result. Short runs are repeated, as the clock of the kernel is coarse.
fn time<T>(run: impl Fn() -> T) -> (f64, T) {
    let start = cpu_ms();
    let mut runs = 0.0;
    loop {
        let result = run();
        runs += 1.0;
        let spent = cpu_ms() - start;
        if spent >= 60.0 {
            return (spent / runs, result);
        }
    }
}

/// Returns the CPU time of this thread if the system reports it, else wall-clock time.
fn cpu_ms() -> f64 {
    thread_local!(static START: Instant = Instant::now());
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanos = schedstat.and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    nanos.map_or_else(
        || START.with(|start| start.elapsed().as_secs_f64() * 1e3),
        |nanos| nanos / 1e6,
    )
}
