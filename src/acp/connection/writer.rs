//! The writer task: the only one that sends to an agent.

use std::io;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::acp::transport::Outgoing;

/// How the writer's life and the reader's are tied.
#[derive(Clone, Debug, Default)]
pub(super) struct WriterEnds {
    /// Given by the reader when the agent is gone: a process that holds the pipe must not hold up this task.
    pub(super) agent_gone: CancellationToken,
    /// Given by the writer when the agent takes nothing any more.
    pub(super) outgoing_lost: CancellationToken,
}

pub(super) struct Writer<O> {
    outgoing: O,
    queue: mpsc::Receiver<Vec<u8>>,
    closing: CancellationToken,
    ends: WriterEnds,
}

impl<O: Outgoing> Writer<O> {
    pub(super) fn new(outgoing: O, queue: mpsc::Receiver<Vec<u8>>, closing: CancellationToken) -> Self {
        Self { outgoing, queue, closing, ends: WriterEnds::default() }
    }

    pub(super) fn ends(&self) -> WriterEnds {
        self.ends.clone()
    }

    pub(super) async fn run(mut self) {
        let WriterEnds { agent_gone, outgoing_lost } = self.ends.clone();
        tokio::select! {
            // An agent that is gone needs no more words, however many wait.
            biased;
            () = agent_gone.cancelled() => {}
            written = self.write_queue() => {
                if let Err(error) = written {
                    debug!(%error, "the agent takes nothing any more");
                    outgoing_lost.cancel();
                }
            }
        }
    }

    async fn write_queue(&mut self) -> io::Result<()> {
        loop {
            let message = tokio::select! {
                // What is queued is sent before the way is closed.
                biased;
                message = self.queue.recv() => message,
                () = self.closing.cancelled() => None,
                error = self.outgoing.keep_alive() => return Err(error),
            };
            let Some(message) = message else { break };
            self.outgoing.send(message).await?;
        }
        self.outgoing.close().await
    }
}
