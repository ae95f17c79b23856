//! Three members of etcd below the servers of a run, with a network that can be cut.

use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use mizzen_etcd::client::Client;
use mizzen_etcd::messages::{CompactionRequest, RangeRequest};
use tokio::sync::Mutex;

use super::network::{Between, Cut, End, Network};
use crate::etcd_server::{Cluster, Etcd, Options, PeerPort};
use crate::process::Home;

pub(crate) const N_MEMBERS: usize = 3;
/// A leader is missed sooner than by default, so that faults can be short. Snapshots are more frequent, so that a member
/// that starts again reads the log of a thousand writes at most, not of the whole run. Servers that are killed again and
/// again do not get to compact the past, so that it has more room than by default.
const FLAGS: [&str; 4] = [
    "--heartbeat-interval=50",
    "--election-timeout=500",
    "--snapshot-count=1000",
    "--quota-backend-bytes=8589934592",
];
/// How long a compaction waits for members that may be away.
const COMPACT_TIMEOUT: Duration = Duration::from_secs(2);

/// Members and the network around them.
pub(crate) struct EtcdCluster {
    cluster: Mutex<Cluster>,
    /// Of all members, beside the network.
    client: Client,
    network: Network,
}

impl EtcdCluster {
    /// Members that reach each other through the network.
    pub(crate) async fn start(etcd: &Etcd) -> EtcdCluster {
        let network = Network::new();
        let mut peers = Vec::new();
        // All are bound before one is closed, so that no two are the same.
        let bind = |_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let listeners: Vec<_> = (0..N_MEMBERS).map(bind).collect();
        for (member, listener) in listeners.iter().enumerate() {
            let listen = listener.local_addr().unwrap().port();
            let advertise = network.port(End::Unknown, member, listen).await;
            peers.push(PeerPort { listen, advertise });
        }
        drop(listeners);
        let options = Options {
            n_members: N_MEMBERS,
            flags: FLAGS.to_vec(),
            is_durable: true,
            peers,
            ..Options::default()
        };
        let cluster = etcd.start(options).await;
        network.name_members(ids(&cluster).await);
        EtcdCluster {
            client: cluster.client().with_call_timeout(COMPACT_TIMEOUT),
            cluster: Mutex::new(cluster),
            network,
        }
    }

    /// Servers that reach members through the network, each by ports of its own.
    pub(crate) async fn homes(&self, n_servers: usize, prefix: &str) -> Vec<Home> {
        let mut homes = Vec::new();
        for server in 0..n_servers {
            let mut endpoints = Vec::new();
            for member in 0..N_MEMBERS {
                let endpoint = self.cluster.lock().await.endpoint(member);
                let target = endpoint.rsplit(':').next().unwrap().parse().unwrap();
                let port = self.network.port(End::Server(server), member, target).await;
                endpoints.push(format!("http://127.0.0.1:{port}"));
            }
            let home = Home::on_disk()
                .with("--etcd-servers")
                .with(endpoints.join(","));
            homes.push(home.with("--etcd-prefix").with(prefix));
        }
        homes
    }

    /// Kills a member with SIGKILL, and starts it again after `over`.
    pub(crate) async fn kill(&self, member: usize, over: impl Future<Output = ()>) {
        let mut cluster = self.cluster.lock().await;
        cluster.kill(member);
        over.await;
        cluster.restart(member).await;
    }

    /// Pauses a member until `over`.
    pub(crate) async fn pause(&self, member: usize, over: impl Future<Output = ()>) {
        let cluster = self.cluster.lock().await;
        cluster.pause(member);
        over.await;
        cluster.resume(member);
    }

    /// Compacts all revisions before the present one. Returns whether a majority of the members has done so.
    pub(crate) async fn compact(&self) -> bool {
        let request = RangeRequest {
            key: "/".into(),
            ..RangeRequest::default()
        };
        let Ok(present) = self.client.range(request).await else {
            return false;
        };
        let request = CompactionRequest {
            revision: present.header.expect("a header").revision,
            physical: false,
        };
        self.client.compact(request).await.is_ok()
    }

    /// Cuts connections until `over`.
    pub(crate) async fn cut(&self, between: Between, cut: Cut, over: impl Future<Output = ()>) {
        self.network.cut(between, cut);
        over.await;
        self.network.heal();
    }
}

/// The ids of the members.
async fn ids(cluster: &Cluster) -> Vec<u64> {
    let answers = cluster.client().status().await.into_iter();
    let ids = answers.map(|answer| answer.status.unwrap().header.unwrap().member_id);
    ids.collect()
}
