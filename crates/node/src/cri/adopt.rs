//! What was there before the agent started: sandboxes and containers with the labels of this node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mizzen_cri::messages::{
    ContainerFilter, ContainerState, ContainerStatus, ContainerStatusRequest,
    ListContainersRequest, ListPodSandboxRequest, PodSandbox, PodSandboxFilter, PodSandboxState,
    RemoveContainerRequest,
};
use mizzen_cri::{CallError, Code};
use mizzen_sdk::Key;
use mizzen_value::Str;
use tokio::time::sleep;

use super::config::{NODE, POD_NAME, POD_NAMESPACE, POD_UID};
use super::container::ContainerCell;
use super::sandbox::{Sandbox, SandboxPhase};
use super::{CriNode, PodRecord};

/// How often a container that is just being started is looked at, and how long in between: no start
/// takes longer than its call (mizzen_cri, `REQUEST`).
const STARTING_CHECKS: usize = 600;
const STARTING_PAUSE: Duration = Duration::from_millis(200);
/// How often before it is removed.
const SETTLING_CHECKS: usize = 10;
/// containerd: a container whose process was not made (pkg/cri/server/container_start.go).
const NOT_CREATED: &str = "failed to create containerd task";

impl CriNode {
    pub(super) fn selector(&self) -> BTreeMap<String, String> {
        [(NODE.to_owned(), self.node.clone())].into()
    }

    /// The sandboxes of this node.
    pub(super) async fn list_sandboxes(&self) -> Result<Vec<PodSandbox>, CallError> {
        let filter = PodSandboxFilter {
            label_selector: self.selector(),
            ..PodSandboxFilter::default()
        };
        let request = ListPodSandboxRequest {
            filter: Some(filter),
        };
        Ok(self.client.call(request).await?.items)
    }

    /// The containers of this node.
    pub(super) async fn list_containers(
        &self,
    ) -> Result<Vec<mizzen_cri::messages::Container>, CallError> {
        let filter = ContainerFilter {
            label_selector: self.selector(),
            ..ContainerFilter::default()
        };
        let request = ListContainersRequest {
            filter: Some(filter),
        };
        Ok(self.client.call(request).await?.containers)
    }

    /// Makes the table of pods from the runtime.
    pub(super) async fn adopt(self: &Arc<Self>) -> Result<(), CallError> {
        let mut sandboxes = self.list_sandboxes().await?;
        sandboxes.sort_by_key(|sandbox| sandbox.created_at);
        for sandbox in sandboxes {
            self.adopt_sandbox(sandbox).await?;
        }
        let mut containers = self.list_containers().await?;
        containers.sort_by_key(|container| {
            let attempt = container.metadata.as_ref().map(|it| it.attempt);
            (attempt, container.created_at)
        });
        for container in containers {
            let is_removed = match container.state() {
                ContainerState::Created => {
                    self.remove_unstarted(&container.id).await?
                        || self.remove_interrupted(&container.id).await?
                }
                ContainerState::Exited => self.remove_interrupted(&container.id).await?,
                _ => false,
            };
            if is_removed {
                continue;
            }
            let (Some(uid), Some(metadata)) = (container.labels.get(POD_UID), &container.metadata)
            else {
                continue;
            };
            let cell = Arc::new(ContainerCell::new(uid, &metadata.name, metadata.attempt));
            {
                let mut state = cell.state.lock();
                state.id = container.id.as_str().into();
                state.sandbox = container.pod_sandbox_id.as_str().into();
            }
            self.refresh(&cell).await?;
            if let Some(record) = self.pods.lock().get_mut(uid.as_str()) {
                record.containers.push(cell);
            }
        }
        Ok(())
    }

    /// Removes a container that was created and not started, because the agent ended between the two
    /// calls, or the start failed: it starts anew. False if the last call has started it.
    ///
    /// containerd removes a container that runs by force, and it would run twice then. So the start of
    /// an agent that has ended gets the time to succeed, or to be given up, before the removal.
    pub(super) async fn remove_unstarted(&self, id: &str) -> Result<bool, CallError> {
        for check in 0..STARTING_CHECKS {
            let Some(status) = self.find_status(id).await? else {
                return Ok(true);
            };
            if status.state() != ContainerState::Created {
                return Ok(false);
            }
            if check >= SETTLING_CHECKS {
                match self.remove_adopted(id).await {
                    Ok(()) => return Ok(true),
                    Err(error) => {
                        tracing::debug!(%error, container = id, "a container is just starting");
                    }
                }
            }
            sleep(STARTING_PAUSE).await;
        }
        Err(CallError {
            code: Code::DeadlineExceeded,
            message: format!("container {id} does not start and cannot be removed"),
        })
    }

    /// Removes a container of which the task was not created: a runtime gives up a call whose client
    /// has gone, and takes the container for exited. It starts anew, unless the status of the pod has
    /// its end already. One whose task was created may have run, and stays as it is: no container
    /// runs twice.
    async fn remove_interrupted(&self, id: &str) -> Result<bool, CallError> {
        let Some(status) = self.find_status(id).await? else {
            return Ok(true);
        };
        let never_ran = status.started_at == 0 && status.message.contains(NOT_CREATED);
        if status.state() != ContainerState::Exited || !never_ran {
            return Ok(false);
        }
        self.remove_adopted(id).await?;
        Ok(true)
    }

    /// The status of a container, if the runtime has it.
    async fn find_status(&self, id: &str) -> Result<Option<ContainerStatus>, CallError> {
        let request = ContainerStatusRequest {
            container_id: id.into(),
            verbose: false,
        };
        match self.client.call(request).await {
            Ok(response) => Ok(Some(response.status.unwrap_or_default())),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes a container that may have gone already.
    pub(super) async fn remove_adopted(&self, id: &str) -> Result<(), CallError> {
        let request = RemoveContainerRequest {
            container_id: id.into(),
        };
        match self.client.call(request).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    /// Adds a sandbox to the record of its pod. An older one is removed.
    async fn adopt_sandbox(self: &Arc<Self>, sandbox: PodSandbox) -> Result<(), CallError> {
        let label = |name: &str| sandbox.labels.get(name).map_or("", String::as_str);
        let (uid, id) = (Str::from(label(POD_UID)), Str::from(sandbox.id.as_str()));
        let phase = match sandbox.state() {
            PodSandboxState::Ready => SandboxPhase::Ready {
                addresses: self.sandbox_addresses(&id).await?,
                id,
            },
            PodSandboxState::NotReady => SandboxPhase::Lost { id },
        };
        let attempt = sandbox.metadata.as_ref().map_or(0, |it| it.attempt);
        let key = Key::new(label(POD_NAMESPACE), label(POD_NAME));
        let old = {
            let mut pods = self.pods.lock();
            let record = pods.entry(uid).or_insert_with(|| PodRecord::new(key));
            let adopted = Sandbox {
                n_attempts: attempt + 1,
                phase,
            };
            let old = std::mem::replace(&mut record.sandbox, adopted);
            old.phase.id().cloned()
        };
        if let Some(old) = old {
            let node = self.clone();
            tokio::spawn(async move { node.remove_sandbox(&old).await });
        }
        Ok(())
    }
}
