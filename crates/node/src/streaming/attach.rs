//! attach: the output and the stdin of a container's own process.

use mizzen_sdk::Key;
use tokio::time::sleep;

use crate::moment::Moment;
use crate::pod::spec;
use crate::runtime::{ContainerLife, ContainerRuntime, Stdio};
use crate::server::{ContainerInstance, FOLLOW, KubeletServer};

/// A client that is attached to a container.
pub(super) struct Attached {
    server: KubeletServer,
    key: Key,
    container: String,
    life: ContainerInstance,
    /// Earlier output is not sent.
    from: Moment,
    n_sent: usize,
}

/// What happens to the input of a client.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StdinMode {
    /// The container has no stdin: input is dropped.
    Dropped,
    /// The container reads it, and its stdin stays open when the client leaves.
    Kept,
    /// The container reads it, and its stdin closes with the client's.
    Once,
}

impl Attached {
    /// Attaches to a container instance.
    pub(super) fn new(
        server: KubeletServer,
        key: Key,
        container: &str,
        life: ContainerInstance,
    ) -> Attached {
        let from = server.settings.now();
        Attached {
            server,
            key,
            container: container.into(),
            life,
            from,
            n_sent: 0,
        }
    }

    /// Copies in both directions until the container exits or the client leaves. Kubernetes: a
    /// container runtime closes the stdin of a container with `stdinOnce` and without a terminal;
    /// otherwise a client that closes its side is detached (containerd,
    /// internal/cri/io/container_io.go).
    pub(super) async fn run(mut self, mut stdio: Stdio) -> Result<i64, String> {
        let mode = self.stdin_mode().await;
        while self.print(&stdio).await {
            tokio::select! {
                typed = stdio.read() => match (mode, typed) {
                    (StdinMode::Dropped, _) => {}
                    (StdinMode::Kept, None) => return Ok(0),
                    (_, typed) => self.server.agent.stdin(&self.key, &self.life.id, typed).await?,
                },
                () = sleep(FOLLOW) => {}
            }
        }
        Ok(0)
    }

    async fn stdin_mode(&self) -> StdinMode {
        let Some(view) = self.server.agent.pod(&self.key).await else {
            return StdinMode::Dropped;
        };
        let spec = spec::container(&view.pod, &self.container);
        match (spec["stdin"].bool(), spec["stdinOnce"].bool()) {
            (false, _) => StdinMode::Dropped,
            (true, true) if !spec["tty"].bool() => StdinMode::Once,
            (true, _) => StdinMode::Kept,
        }
    }

    /// Sends the new output; true if there may be more.
    async fn print(&mut self, stdio: &Stdio) -> bool {
        let Some(view) = self.server.agent.pod(&self.key).await else {
            return false;
        };
        match ContainerInstance::find(&view.pod, &self.container, false) {
            Ok(life) if life.since == self.life.since => self.life = life,
            _ => return false,
        }
        let from = self.from;
        let read = |runtime: &dyn ContainerRuntime, life: &ContainerLife, now| {
            runtime.output(life, from, now)
        };
        let chunks = self
            .server
            .read_instance(&view, &self.container, &self.life, read);
        let n_before = std::mem::replace(&mut self.n_sent, chunks.len());
        for chunk in chunks.into_iter().skip(n_before) {
            let output = if chunk.is_error {
                &stdio.stderr
            } else {
                &stdio.stdout
            };
            if let Some(output) = output
                && output.send(chunk.text.into()).await.is_err()
            {
                return false;
            }
        }
        self.life.until.is_none()
    }
}
