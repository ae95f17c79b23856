//! Kills and pauses servers, and what is below them, while clients send requests.

use super::etcd::{EtcdCluster, N_MEMBERS};
use super::network::{Between, Cut};
use super::recorder::Recorder;
use super::servers::Servers;
use super::{N_CLIENTS, N_REQUESTS};
use crate::random::Random;

/// How many requests there are between two faults.
const INTERVAL: usize = 90;
/// How many requests end during a pause: enough to have been sent in it.
const N_PAUSED: usize = 4;
/// How many requests end while a member is away or connections are cut.
const N_CUT: usize = 40;

/// A fault every so many requests, as long as there are some left.
pub(crate) async fn disturb(servers: &Servers, recorder: &Recorder, mut random: Random) {
    for n_attempts in (INTERVAL..N_REQUESTS - 2 * N_CLIENTS).step_by(INTERVAL) {
        recorder.attempted(n_attempts).await;
        match servers.etcd().filter(|_| random.below(2) == 0) {
            Some(etcd) => disturb_etcd(etcd, servers.len(), recorder, &mut random).await,
            None => disturb_server(servers, recorder, &mut random).await,
        }
    }
}

async fn disturb_server(servers: &Servers, recorder: &Recorder, random: &mut Random) {
    let server_idx = random.below(servers.len() as u64) as usize;
    if random.below(3) == 0 {
        let over = after(recorder, N_PAUSED);
        servers.pause(server_idx, over).await;
    } else {
        servers.kill(server_idx).await;
    }
}

async fn disturb_etcd(
    etcd: &EtcdCluster,
    n_servers: usize,
    recorder: &Recorder,
    random: &mut Random,
) {
    let member = random.below(N_MEMBERS as u64) as usize;
    let server = random.below(n_servers as u64) as usize;
    let cut = match random.below(2) {
        0 => Cut::Hold,
        _ => Cut::Reset,
    };
    let over = after(recorder, N_CUT);
    match random.below(5) {
        0 => etcd.kill(member, over).await,
        1 => etcd.pause(member, over).await,
        2 => etcd.cut(Between::Members(member), cut, over).await,
        3 => etcd.cut(Between::Server(server), cut, over).await,
        _ => {
            let between = Between::ServerAndMember(server, member);
            etcd.cut(between, cut, over).await;
        }
    }
}

/// Waits for so many more requests.
async fn after(recorder: &Recorder, n_requests: usize) {
    let until = (recorder.n_attempts() + n_requests).min(N_REQUESTS);
    recorder.attempted(until).await;
}
