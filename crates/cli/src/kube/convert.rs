//! `dovetail kube convert`: HiveD's configuration as Kubernetes objects.

use anyhow::Context;
use dovetail_console::{self as console, Failure, OrFailure};
use dovetail_kube::convert_hived;

use super::args::ConvertArgs;

/// Prints a ClusterTopology and a VirtualCluster for each virtual cluster.
pub(super) fn run(args: &ConvertArgs) -> Result<(), Failure> {
    let path = args.file.display().to_string();
    let text = std::fs::read_to_string(&args.file)
        .with_context(|| path.clone())
        .or_request()?;
    let mut out = String::new();
    for document in convert_hived(&text, &path, &args.name).or_request()? {
        out.push_str("---\n");
        out.push_str(&serde_saphyr::to_string(&document).or_work()?);
    }
    console::print(out.trim_end())
}
