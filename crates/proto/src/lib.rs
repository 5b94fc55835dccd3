//! The gRPC protocol between the server and the agents on its nodes.
//!
//! Messages are defined and documented in `proto/dovetail/v1/agent.proto`.

/// Version 1 of the protocol.
#[allow(
    missing_docs,
    clippy::all,
    unreachable_pub,
    reason = "generated from the .proto file, which documents the messages"
)]
pub mod v1 {
    tonic::include_proto!("dovetail.v1");
}
