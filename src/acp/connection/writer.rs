//! The writer task: the only one that writes to an agent's standard input.

use std::io;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::debug;

/// How the writer's life and the reader's are tied.
#[derive(Clone, Debug, Default)]
pub(super) struct WriterEnds {
    /// Given by the reader when the agent is gone: a process that holds the pipe must not hold up this task.
    pub(super) agent_gone: CancellationToken,
    /// Given by the writer when the agent takes nothing any more.
    pub(super) stdin_lost: CancellationToken,
}

pub(super) struct Writer<W> {
    stdin: W,
    queue: mpsc::Receiver<Vec<u8>>,
    closing: CancellationToken,
    ends: WriterEnds,
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    pub(super) fn new(stdin: W, queue: mpsc::Receiver<Vec<u8>>, closing: CancellationToken) -> Self {
        Self { stdin, queue, closing, ends: WriterEnds::default() }
    }

    pub(super) fn ends(&self) -> WriterEnds {
        self.ends.clone()
    }

    pub(super) async fn run(mut self) {
        let WriterEnds { agent_gone, stdin_lost } = self.ends.clone();
        tokio::select! {
            // An agent that is gone needs no more words, however many wait.
            biased;
            () = agent_gone.cancelled() => {}
            written = self.write_queue() => {
                if let Err(error) = written {
                    debug!(%error, "the agent's standard input is closed");
                    stdin_lost.cancel();
                }
            }
        }
    }

    async fn write_queue(&mut self) -> io::Result<()> {
        loop {
            let line = tokio::select! {
                // What is queued is written before the pipe is closed.
                biased;
                line = self.queue.recv() => line,
                () = self.closing.cancelled() => None,
            };
            let Some(line) = line else { break };
            self.stdin.write_all(&line).await?;
            self.stdin.flush().await?;
        }
        self.stdin.shutdown().await
    }
}
