//! The API server in pods: the address of the Service `default/kubernetes`, on the bridge of the node.
//!
//! The node has no proxy of Services. On the bridge that it has configured itself it has the address
//! of this one Service, and copies connections to the API server. So clients in pods dial the
//! address that is in their environment and in the certificate of the server. Pods on the host
//! network get the address that the agent dials.
//!
//! Invariant: the listener is bound to the bridge, so that several nodes of a machine do not conflict
//! and no other network reaches it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use mizzen_cri::messages::KeyValue;
use mizzen_value::{Str, Value};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::{CriNode, network};

/// The variables with the address.
const HOST: &str = "KUBERNETES_SERVICE_HOST";
const PORT: &str = "KUBERNETES_SERVICE_PORT";
/// The most connections at once.
const MAX_CONNECTIONS: usize = 1000;
/// How long to wait after `accept` has failed.
const PAUSE: Duration = Duration::from_millis(100);
/// How long `ip` may take.
const PROGRAM: Duration = Duration::from_secs(10);

/// The listener at the address; it ends with this value.
#[derive(Default)]
pub(super) struct ServiceListener {
    address: Option<SocketAddr>,
    task: JoinSet<()>,
}

impl ServiceListener {
    fn serves(&self, service: Option<SocketAddr>) -> bool {
        self.address == service && !self.task.is_empty()
    }
}

/// The address of the Service, from the variables of Services.
pub(super) fn service_address(services: &[(Str, Str)]) -> Option<SocketAddr> {
    let value = |wanted: &str| {
        let mut found = services.iter().filter(|(name, _)| name == wanted);
        found.next().map(|(_, value)| value.as_str())
    };
    let address: IpAddr = value(HOST)?.parse().ok()?;
    Some(SocketAddr::new(address, value(PORT)?.parse().ok()?))
}

/// Whether a pod gets the address that the agent dials; `is_served` if it reaches that of the Service.
pub(super) fn needs_host_address(pod: &Value, is_served: bool, api: &str) -> bool {
    pod["spec"]["hostNetwork"].bool() || !is_served && !is_local(api)
}

/// Whether only this machine reaches an address.
fn is_local(api: &str) -> bool {
    let host = api.rsplit_once(':').map_or(api, |(host, _)| host);
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|it| it.is_loopback() || it.is_unspecified())
}

/// Replaces the address of the Service by that of the API server, unless the user has set another.
pub(super) fn use_host_address(variables: &mut [KeyValue], service: SocketAddr, api: &str) {
    let Some((host, port)) = api.rsplit_once(':') else {
        return;
    };
    let old = service.ip().to_string();
    let is_own = |it: &KeyValue| it.key == HOST && it.value == old.as_bytes();
    if !variables.iter().any(is_own) {
        return;
    }
    for variable in variables {
        match variable.key.as_str() {
            HOST => variable.value = host.trim_matches(['[', ']']).to_owned().into(),
            PORT => variable.value = port.to_owned().into(),
            _ => {}
        }
    }
}

impl CriNode {
    /// Serves the API server for pods that were there before the agent started, unless that is done.
    pub(super) async fn serve_api_again(&self, service: Option<SocketAddr>) {
        let is_served = self.service_listener.lock().await.serves(service);
        if !is_served {
            self.serve_api(service).await;
        }
    }

    /// Serves the API server at the address of its Service, unless that is done or another program
    /// has configured the network. True if it is served.
    pub(super) async fn serve_api(&self, service: Option<SocketAddr>) -> bool {
        let (Some(service), Some(api)) = (service, &self.api_server) else {
            return false;
        };
        if !network::is_own(&self.network) {
            return false;
        }
        let mut listener = self.service_listener.lock().await;
        let is_served = listener.serves(Some(service));
        let bridge = network::bridge(&self.node);
        // A bridge that was removed and made again has lost its address.
        let bound = match add_address(&bridge, service.ip()).await {
            Ok(()) if is_served => return true,
            Ok(()) => bind(&bridge, service),
            Err(error) => Err(error),
        };
        match bound {
            Ok(bound) => {
                tracing::info!(%service, api, bridge, "pods reach the API server at its Service");
                listener.task.abort_all();
                listener.address = Some(service);
                listener.task.spawn(serve(bound, api.as_str().into()));
                true
            }
            Err(error) => {
                tracing::warn!(%error, %service, bridge, "pods cannot reach the API server at its Service");
                false
            }
        }
    }
}

/// Copies connections until the future is dropped.
async fn serve(listener: TcpListener, api: Arc<str>) {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let Ok(place) = room.clone().acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((near, _)) => {
                let api = api.clone();
                connections.spawn(async move {
                    forward(near, &api).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                sleep(PAUSE).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn forward(mut near: TcpStream, api: &str) {
    match mizzen_transport::dial(api).await {
        Ok(mut far) => {
            let _ = near.set_nodelay(true);
            // It ends when both sides have closed, or one has failed.
            let _ = copy_bidirectional(&mut near, &mut far).await;
        }
        Err(error) => tracing::warn!(%error, "cannot reach the API server for a pod"),
    }
}

#[cfg(target_os = "linux")]
fn bind(bridge: &str, address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => tokio::net::TcpSocket::new_v4()?,
        SocketAddr::V6(_) => tokio::net::TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    // The listener of an agent that is just ending may be there.
    socket.set_reuseport(true)?;
    socket.bind_device(Some(bridge.as_bytes()))?;
    socket.bind(address)?;
    socket.listen(1024)
}

#[cfg(not(target_os = "linux"))]
fn bind(_: &str, _: SocketAddr) -> io::Result<TcpListener> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Adds an address to an interface with iproute2. One that is there stays.
async fn add_address(interface: &str, address: IpAddr) -> io::Result<()> {
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let address = format!("{address}/{bits}");
    let mut command = Command::new("ip");
    command
        .args(["address", "replace", &address, "dev", interface])
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = match timeout(PROGRAM, command.output()).await {
        Ok(output) => output.map_err(|error| io::Error::other(format!("ip: {error}")))?,
        Err(_) => return Err(io::ErrorKind::TimedOut.into()),
    };
    match output.status.success() {
        true => Ok(()),
        false => {
            let text = String::from_utf8_lossy(&output.stderr);
            Err(io::Error::other(format!("ip: {}", text.trim())))
        }
    }
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    #[test]
    fn pods_of_another_network_dial_what_the_agent_dials_if_they_can() {
        let check = |host_network: bool, is_served: bool, api: &str, expected: bool| {
            let pod = value!({ "spec": { "hostNetwork": host_network } });
            let found = needs_host_address(&pod, is_served, api);
            assert_eq!(found, expected, "{host_network} {is_served} {api}");
        };
        check(false, true, "10.1.2.3:6443", false);
        check(false, false, "10.1.2.3:6443", true);
        check(false, false, "api.test:6443", true);
        for local in ["127.0.0.1:6443", "[::1]:6443", "localhost:6443"] {
            check(false, false, local, false);
            check(true, true, local, true);
        }
    }

    #[test]
    fn pods_on_the_host_network_dial_what_the_agent_dials() {
        let services = [(HOST, "10.96.0.1"), (PORT, "443")];
        let services = services.map(|(name, value)| (Str::from(name), Str::from(value)));
        let service = service_address(&services).unwrap();
        assert_eq!(service.to_string(), "10.96.0.1:443");
        assert_eq!(service_address(&services[..1]), None);
        let variables = |host: &str| {
            [(HOST, host), (PORT, "443"), ("A", "443")].map(|(key, value)| KeyValue {
                key: key.into(),
                value: value.to_owned().into(),
            })
        };
        let changed = |host: &str, api: &str| {
            let mut variables = variables(host);
            use_host_address(&mut variables, service, api);
            variables.map(|it| String::from_utf8(it.value.to_vec()).unwrap())
        };
        assert_eq!(changed("10.96.0.1", "[::1]:6443"), ["::1", "6443", "443"]);
        assert_eq!(changed("mine", "a.test:1"), ["mine", "443", "443"]);
    }
}
