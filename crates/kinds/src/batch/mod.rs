//! Kinds of batch: workloads that run to completion.

mod cron_job;
mod indexes;
mod job;
mod job_policies;
mod job_spec;
mod job_status;

use crate::Behaviour;

pub(crate) fn behaviour(kind: &str) -> Behaviour {
    match kind {
        "Job" => job::BEHAVIOUR,
        "CronJob" => cron_job::BEHAVIOUR,
        _ => Behaviour::NONE,
    }
}
