//! Refusals: a gRPC status with `ErrorInfo`, whose reason programs decide by, and typed details.

use anyhow::{Context, Result, bail, ensure};
use prost::{Message, Name};
use tonic::{Code, Status};
use tonic_types::{StatusExt, pb};

/// The reason of a refusal, or none where the status comes from the transport.
pub fn reason_of(refusal: &Status) -> Option<String> {
    refusal.get_details_error_info().filter(|info| info.domain == "interlock").map(|info| info.reason)
}

/// The refusal that a call must have ended with.
pub fn refusal_of<T>(answer: Result<T, Status>, code: Code, reason: &str) -> Result<Status> {
    let Err(refusal) = answer else { bail!("was not refused with {reason}") };
    let found = reason_of(&refusal);
    let as_due = refusal.code() == code && found.as_deref() == Some(reason);
    ensure!(as_due, "refused with {:?} {found:?}: {}", refusal.code(), refusal.message());
    Ok(refusal)
}

/// A typed detail of a refusal.
pub fn detail_of<M: Message + Name + Default>(refusal: &Status) -> Result<M> {
    let status = pb::Status::decode(refusal.details())?;
    let detail = status.details.iter().find_map(|any| any.to_msg().ok());
    detail.with_context(|| format!("the refusal has no {}", M::NAME))
}
