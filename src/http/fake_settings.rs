//! Settings for tests.

use std::time::Duration;

use super::HttpSettings;
use super::prompt::PromptLimits;
use crate::session::agent::Mode;

/// As a gateway on loopback has them, with room for few.
pub(super) fn settings() -> HttpSettings {
    HttpSettings {
        allowed_hosts: vec!["localhost".into(), "127.0.0.1".into()],
        cors_origins: vec!["https://app.example".into()],
        public_url: None,
        trusted_proxies: crate::http::forwarded::TrustedProxies::default(),
        heartbeat: Duration::from_secs(15),
        heartbeat_padding: 0,
        kept_answer_bytes: 1 << 20,
        body_bytes: 1024,
        prompt: PromptLimits { blocks: 4, image_bytes: 64, json_bytes: usize::MAX },
        wait: Duration::from_mins(5),
        streams_per_caller: 4,
        stream_tickets_per_caller: 2,
        header_timeout: Duration::from_secs(10),
        write_timeout: Duration::from_mins(1),
        max_connections: 16,
        auth_required: true,
        loopback_only: true,
        storage_dir: "/nowhere".into(),
        cwd_roots: Vec::new(),
        default_mode: Mode::SmartApprove,
        allow_modes: Mode::ALL.to_vec(),
        default_provider: None,
        default_model: None,
        caller_env: Vec::new(),
    }
}
