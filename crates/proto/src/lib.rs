//! What the scheduler and the agents on its nodes say to each other, over gRPC.
//!
//! The messages are in `proto/dovetail/v1/agent.proto`, which says what each of them means.

/// Version 1 of the protocol.
#[allow(
    missing_docs,
    clippy::all,
    unreachable_pub,
    reason = "generated from the .proto file, which has the words"
)]
pub mod v1 {
    tonic::include_proto!("dovetail.v1");
}
