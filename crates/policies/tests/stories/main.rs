//! The behaviour of every part in stories of a few lines: a cluster, a policy, the events, and the expected trace.

mod admissions;
mod disciplines;
mod found;
mod orders;
mod placements;
mod sharing;
mod sizings;
mod tenancies;
mod themis;
