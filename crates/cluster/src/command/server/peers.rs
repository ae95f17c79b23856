//! Peers: the other API servers on the same etcd.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::Args;
use mizzen_apiserver::PeerProxyOptions;
use mizzen_bootstrap::pki::read_certificates;

use crate::command::tls::argument;
use crate::compose::ComposeError;

/// The arguments of peers.
#[derive(Args, Clone)]
pub(crate) struct PeerArgs {
    /// Proxy requests for resources that this server does not serve to servers on the same etcd that do, and show those
    /// resources in discovery; verify their serving certificates by these authorities (PEM) [default: not proxied]
    #[arg(long, value_name = "FILE")]
    peer_ca_file: Option<PathBuf>,
    /// Tell other servers on the same etcd to reach this one at this address; has no effect without
    /// --peer-advertise-port [default: the address of --advertise-address]
    #[arg(long, value_name = "IP")]
    peer_advertise_ip: Option<IpAddr>,
    /// Tell other servers on the same etcd to reach this one at this port; has no effect without --peer-advertise-ip
    /// [default: the port that the server listens on]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    peer_advertise_port: Option<u16>,
}

impl PeerArgs {
    /// How the server `id` proxies requests to peers; none without authorities for their certificates.
    pub(crate) fn proxy(
        &self,
        id: &str,
        uses_etcd: bool,
    ) -> Result<Option<PeerProxyOptions>, ComposeError> {
        let Some(file) = &self.peer_ca_file else {
            return Ok(None);
        };
        let authorities = read_certificates(file)?.into();
        if !uses_etcd {
            let why =
                "there are no peers without --etcd-servers: one server serves the data directory";
            return Err(argument("--peer-ca-file", why.into()));
        }
        Ok(Some(PeerProxyOptions {
            server_id: id.into(),
            authorities,
        }))
    }

    /// The address for peers, if it is given. Kubernetes: both parts must be, or neither counts
    /// (controlplane/apiserver/peer.go, getPeerAddress).
    pub(crate) fn advertised(&self) -> Option<SocketAddr> {
        let (ip, port) = (self.peer_advertise_ip?, self.peer_advertise_port?);
        Some(SocketAddr::new(ip, port))
    }
}
