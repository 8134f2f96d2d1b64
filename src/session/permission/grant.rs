//! What "always" has remembered in one session.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::session::id::{GrantId, PermissionId, Timestamp};
use crate::session::policy::Grant;

/// An answer that holds for the rest of the session, until it is taken back. It never beats a rule that asks or rejects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PermissionGrant {
    /// gander's id.
    pub id: GrantId,
    /// What is remembered, for people.
    #[schema(examples("Always allow `git status` in this session"))]
    pub name: String,
    /// What is remembered.
    #[serde(flatten)]
    pub grant: Grant,
    /// The request that was answered so.
    pub permission_id: PermissionId,
    /// The caller who answered.
    pub by: String,
    /// When.
    pub granted_at: Timestamp,
}
