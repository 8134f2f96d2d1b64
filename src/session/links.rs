//! Files that a prompt links.
//!
//! The agent puts the text of a file that a `resource_link` names into the prompt, from anywhere on its host and without
//! asking (measured on goose 1.52). So a link to a file leads into the session's own directory or nowhere. The agent
//! reads addresses as a browser does, in any spelling (`FILE:/a/../b`, a tab within, `%2e%2e`, `localhost`); the same
//! parser reads them here, and the agent is given the real path that was looked at, in plain form.
//!
//! Between the look and the agent's reading something can put a symbolic link in the file's place. Only who can write in
//! the directory can do that: the agent's own tools, and whoever shares the directory. What waits, in the queue or
//! for the agent, where there is time for it, is looked at again before it is sent.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use url::Url;

use super::turn::Prompt;

const ELSEWHERE: &str = "must be a file in the session's directory";

/// Why a block's `uri` is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkFault {
    /// The block's place in the prompt.
    pub block: usize,
    /// What is wrong with it, for people; the same for every file that is not the session's, be it there or not.
    pub detail: String,
}

/// What a link leads to.
enum Link {
    /// A page of the web: the agent is told the address and fetches nothing by itself.
    Web,
    /// A file of this host.
    File(Url),
}

/// Whether a prompt links anything.
pub(super) fn has_links(prompt: &Prompt) -> bool {
    matches!(prompt, Prompt::Blocks(blocks) if blocks.iter().any(is_link))
}

fn is_link(block: &Value) -> bool {
    block["type"] == "resource_link"
}

/// The prompt with the files' real paths in its links. `directory` is the session's own; `most_bytes` is how much the
/// linked files may have together. Blocks for a few system calls for each link.
pub(super) fn resolve(
    prompt: Prompt,
    directory: Option<&Path>,
    most_bytes: u64,
) -> Result<Prompt, Vec<LinkFault>> {
    let Prompt::Blocks(mut blocks) = prompt else { return Ok(prompt) };
    let directory = directory.and_then(|directory| fs::canonicalize(directory).ok());
    let mut faults = Vec::new();
    let mut room = most_bytes;
    for (block, link) in blocks.iter_mut().enumerate().filter(|(_, block)| is_link(block)) {
        let found = match link_of(link["uri"].as_str().unwrap_or_default()) {
            Ok(Link::Web) => continue,
            Ok(Link::File(url)) => file_within(&url, directory.as_deref()),
            Err(detail) => Err(detail),
        };
        match found {
            Ok((_, bytes)) if bytes > room => {
                let detail = format!(
                    "the linked files must not have more than {most_bytes} bytes together (limits.linked_file_bytes)"
                );
                faults.push(LinkFault { block, detail });
            }
            Ok((url, bytes)) => {
                room -= bytes;
                link["uri"] = String::from(url).into();
            }
            Err(detail) => faults.push(LinkFault { block, detail: detail.to_owned() }),
        }
    }
    if faults.is_empty() { Ok(Prompt::Blocks(blocks)) } else { Err(faults) }
}

/// What leads elsewhere now than it did when the prompt was taken.
pub(super) fn moved(before: &Prompt, now: &Prompt) -> Vec<LinkFault> {
    let (Prompt::Blocks(before), Prompt::Blocks(now)) = (before, now) else { return Vec::new() };
    let changed = before.iter().zip(now).enumerate().filter(|(_, (before, now))| before != now);
    changed.map(|(block, _)| LinkFault { block, detail: ELSEWHERE.to_owned() }).collect()
}

/// Reads a link's address. The error is for people.
fn link_of(uri: &str) -> Result<Link, &'static str> {
    match Url::parse(uri) {
        Ok(url) if url.scheme() == "file" => Ok(Link::File(url)),
        Ok(url) if matches!(url.scheme(), "http" | "https") => Ok(Link::Web),
        _ => Err(
            "must be the address of a file in the session's directory (file:) or of a web page (https:, http:)",
        ),
    }
}

/// The plain address and the size of the regular file that `url` leads to, if it is below `directory`.
fn file_within(url: &Url, directory: Option<&Path>) -> Result<(Url, u64), &'static str> {
    let real = || {
        let path: PathBuf = url.to_file_path().ok()?;
        let path = fs::canonicalize(path).ok()?;
        // Before anything else is asked about it: what lies elsewhere is not told apart from what does not exist.
        let file = path.starts_with(directory?).then(|| fs::metadata(&path))?.ok()?;
        // The agent would wait for ever at a pipe.
        let bytes = file.is_file().then_some(file.len())?;
        Some((Url::from_file_path(&path).ok()?, bytes))
    };
    real().ok_or(ELSEWHERE)
}

#[cfg(test)]
mod tests;
