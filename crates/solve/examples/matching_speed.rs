//! tmp
#![allow(clippy::print_stdout, missing_docs)]
use dovetail_solve::matching::*;
use std::time::Instant;
fn main() {
    for n in [100usize, 200, 500, 1000, 2000] {
        let mut s = 12345u64;
        let mut next = || {
            s ^= s << 13;
            s ^= s >> 7;
            s ^= s << 17;
            s
        };
        let mut e = Vec::new();
        for u in 0..n as u32 {
            for v in u + 1..n as u32 {
                e.push((u, v, (next() % 1_000_000) as i64 + 1));
            }
        }
        let t = Instant::now();
        let m = maximum_weight(n, &e);
        let a = t.elapsed();
        verify(&e, &m).expect("ok");
        println!(
            "random {n}: {a:?} weight {} blossoms {}",
            m.weight,
            m.duals.blossoms.len()
        );
        for types in [8u64, 48] {
            let ty: Vec<u64> = (0..n).map(|_| next() % types).collect();
            let mut tab = vec![vec![0i64; types as usize]; types as usize];
            for i in 0..types as usize {
                for j in 0..=i {
                    let w = 300_000 + (next() % 600_000) as i64;
                    tab[i][j] = w;
                    tab[j][i] = w;
                }
            }
            let e: Vec<_> = e
                .iter()
                .map(|&(u, v, _)| (u, v, tab[ty[u as usize] as usize][ty[v as usize] as usize]))
                .collect();
            let t = Instant::now();
            let m = maximum_weight(n, &e);
            let a = t.elapsed();
            verify(&e, &m).expect("ok");
            println!(
                "typed{types} {n}: {a:?} weight {} blossoms {}",
                m.weight,
                m.duals.blossoms.len()
            );
        }
    }
}
