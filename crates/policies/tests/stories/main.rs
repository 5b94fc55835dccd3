//! What every part does, in stories of a few lines: a cluster, a policy, what happens, and the trace beside it.

mod admissions;
mod disciplines;
mod found;
mod orders;
mod placements;
mod sharing;
mod sizings;
mod tenancies;
mod themis;
