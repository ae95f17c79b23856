//! Kills and pauses servers while clients send requests.

use super::recorder::Recorder;
use super::servers::Servers;
use super::{N_CLIENTS, N_REQUESTS};
use crate::random::Random;

/// How many requests there are between two faults.
const INTERVAL: usize = 90;
/// How many requests end without a response during a pause: enough to have been sent in it.
const N_PAUSED: usize = 4;

/// A fault every so many requests, as long as there are some left.
pub(crate) async fn disturb(servers: &Servers, recorder: &Recorder, mut random: Random) {
    for n_attempts in (INTERVAL..N_REQUESTS - 2 * N_CLIENTS).step_by(INTERVAL) {
        recorder.attempted(n_attempts).await;
        let server_idx = random.below(servers.len() as u64) as usize;
        if random.below(3) == 0 {
            let until = (recorder.n_attempts() + N_PAUSED).min(N_REQUESTS);
            servers.pause(server_idx, recorder.attempted(until)).await;
        } else {
            servers.kill(server_idx).await;
        }
    }
}
