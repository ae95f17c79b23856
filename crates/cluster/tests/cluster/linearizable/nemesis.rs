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

/// Faults every so many requests, as long as there are some left: one, or two at a time.
pub(crate) async fn disturb(servers: &Servers, recorder: &Recorder, mut random: Random) {
    for n_attempts in (INTERVAL..N_REQUESTS - 2 * N_CLIENTS).step_by(INTERVAL) {
        recorder.attempted(n_attempts).await;
        let (first, second) = (
            Fault::choose(servers, &mut random),
            Fault::choose(servers, &mut random),
        );
        if first.can_meet(second) && random.below(2) == 0 {
            recorder.count("two faults at a time");
            tokio::join!(
                first.inflict(servers, recorder),
                second.inflict(servers, recorder)
            );
        } else {
            first.inflict(servers, recorder).await;
        }
    }
}

/// What goes wrong, for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    KillServer(usize),
    PauseServer(usize),
    KillMember(usize),
    PauseMember(usize),
    Cut(Between, Cut),
    /// The past of etcd is gone.
    Compact,
}

impl Fault {
    fn choose(servers: &Servers, random: &mut Random) -> Fault {
        let server = random.below(servers.len() as u64) as usize;
        let member = random.below(N_MEMBERS as u64) as usize;
        if servers.etcd().is_none() || random.below(2) == 0 {
            return match random.below(3) {
                0 => Fault::PauseServer(server),
                _ => Fault::KillServer(server),
            };
        }
        let cut = match random.below(3) {
            0 => Cut::Hold,
            1 => Cut::HoldAnswers,
            _ => Cut::Reset,
        };
        match random.below(6) {
            0 => Fault::KillMember(member),
            1 => Fault::PauseMember(member),
            2 => Fault::Cut(Between::Members(member), cut),
            3 => Fault::Cut(Between::Server(server), cut),
            4 => Fault::Cut(Between::ServerAndMember(server, member), cut),
            _ => Fault::Compact,
        }
    }

    /// Whether both can be at the same time: they concern different parts, and a server that starts again reaches members
    /// that answer. Clients wait for its start, so that it must not wait for them.
    fn can_meet(self, other: Fault) -> bool {
        use Fault::*;
        match (self, other) {
            (KillServer(killed), Cut(Between::Server(server), _))
            | (Cut(Between::Server(server), _), KillServer(killed)) => server != killed,
            (KillServer(_), Cut(..) | PauseMember(_))
            | (Cut(..) | PauseMember(_), KillServer(_))
            | (KillServer(_) | PauseServer(_), KillServer(_) | PauseServer(_))
            | (KillMember(_) | PauseMember(_), KillMember(_) | PauseMember(_))
            | (Cut(..), Cut(..))
            | (Compact, Compact) => false,
            _ => true,
        }
    }

    async fn inflict(self, servers: &Servers, recorder: &Recorder) {
        match self {
            Fault::KillServer(server) => {
                recorder.count("kill of a server");
                servers.kill(server).await;
            }
            Fault::PauseServer(server) => {
                recorder.count("pause of a server");
                servers.pause(server, after(recorder, N_PAUSED)).await;
            }
            Fault::KillMember(member) => {
                recorder.count("kill of a member");
                let over = after(recorder, N_CUT);
                etcd_below(servers).kill(member, over).await;
            }
            Fault::PauseMember(member) => {
                recorder.count("pause of a member");
                let over = after(recorder, N_CUT);
                etcd_below(servers).pause(member, over).await;
            }
            Fault::Cut(between, cut) => {
                recorder.count(match between {
                    Between::Members(_) => "cut between members",
                    Between::Server(_) => "cut of a server from all members",
                    Between::ServerAndMember(..) => "cut of a server from a member",
                });
                recorder.count(match cut {
                    Cut::Hold => "connections held up",
                    Cut::HoldAnswers => "answers held up",
                    Cut::Reset => "connections reset",
                });
                let over = after(recorder, N_CUT);
                etcd_below(servers).cut(between, cut, over).await;
            }
            Fault::Compact => {
                if etcd_below(servers).compact().await {
                    recorder.count("compaction");
                }
            }
        }
    }
}

fn etcd_below(servers: &Servers) -> &EtcdCluster {
    servers.etcd().expect("its faults are for servers on etcd")
}

/// Waits for so many more requests.
async fn after(recorder: &Recorder, n_requests: usize) {
    let until = (recorder.n_attempts() + n_requests).min(N_REQUESTS);
    recorder.attempted(until).await;
}
