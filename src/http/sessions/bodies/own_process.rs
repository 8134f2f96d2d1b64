//! What a session can only have with a process of its own.

use super::CreateSession;
use crate::http::host::{ExtensionRefusal, ExtensionWish, HostFacts};
use crate::http::problem::{Code, FieldError, Problem, pointer_token};

impl CreateSession {
    /// Refuses the settings that a session cannot have where all share one process of the agent.
    pub(in crate::http::sessions) fn refuse_what_needs_an_own_process(
        &self,
        host: &dyn HostFacts,
    ) -> Result<(), Problem> {
        let mut faults = Vec::new();
        if !host.sessions_have_environments() {
            faults.extend(self.env.iter().flat_map(|env| env.keys()).map(|name| {
                let detail = "cannot be set: all sessions share one agent process (goose.transport)";
                FieldError::new(format!("/env/{}", pointer_token(name)), detail)
            }));
        }
        let names = self.builtins.iter().flat_map(|names| names.0.iter().enumerate());
        faults.extend(names.filter_map(
            |(place, name)| match host.check_extension(name, ExtensionWish::Have) {
                Err(refusal @ ExtensionRefusal::NotShared) => {
                    Some(FieldError::new(format!("/builtins/{place}"), format!("{name}: {refusal}")))
                }
                _ => None,
            },
        ));
        if faults.is_empty() { Ok(()) } else { Err(Problem::of_fields(Code::NotInThisTransport, faults)) }
    }
}
