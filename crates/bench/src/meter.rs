//! Time, CPU and memory of a measurement.

use std::time::{Duration, Instant};

use super::process::{MeasureError, Processes};

/// A running measurement.
pub(crate) struct ServerMeter<'a> {
    servers: &'a Processes,
    server_cpu: Duration,
    own_cpu: Option<Duration>,
    begin: Instant,
}

/// A finished measurement. Without pids of the server it has no figures of it.
#[derive(Clone, Debug)]
pub(crate) struct MeterReading {
    pub elapsed: Duration,
    pub server_cpu: Option<Duration>,
    pub own_cpu: Option<Duration>,
    pub resident: Option<u64>,
}

impl<'a> ServerMeter<'a> {
    pub(super) fn start(servers: &'a Processes) -> Result<Self, MeasureError> {
        let server_cpu = servers.cpu()?;
        Ok(Self {
            servers,
            server_cpu,
            own_cpu: Processes::own().cpu().ok(),
            begin: Instant::now(),
        })
    }

    pub(super) fn stop(self) -> Result<MeterReading, MeasureError> {
        let elapsed = self.begin.elapsed();
        let measured = !self.servers.is_empty();
        Ok(MeterReading {
            elapsed,
            server_cpu: measured
                .then(|| self.servers.cpu())
                .transpose()?
                .map(|cpu| cpu - self.server_cpu),
            own_cpu: self
                .own_cpu
                .and_then(|before| Some(Processes::own().cpu().ok()? - before)),
            resident: measured.then(|| self.servers.resident()).transpose()?,
        })
    }
}

/// Waits at most 3 s until the servers are idle, so that the next workload is not charged for the last one.
pub(crate) async fn settle(servers: &Processes) -> Result<(), MeasureError> {
    const WINDOW: Duration = Duration::from_millis(100);
    for _ in 0..30 {
        let before = servers.cpu()?;
        tokio::time::sleep(WINDOW).await;
        if servers.cpu()? - before < WINDOW / 10 {
            break;
        }
    }
    Ok(())
}
