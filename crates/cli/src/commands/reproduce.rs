//! placeholder
use crate::args::ReproduceArgs;
use crate::failure::Failure;
/// x
pub fn run(_args: &ReproduceArgs) -> Result<(), Failure> {
    Ok(())
}
