//! Calls over the D-Bus of the system.

use std::time::Duration;

use zbus::connection::Builder;
use zbus::proxy::CacheProperties;
use zbus::{Connection, Proxy};

/// The name, object and interface of systemd.
pub(crate) const SYSTEMD: [&str; 3] = [
    "org.freedesktop.systemd1",
    "/org/freedesktop/systemd1",
    "org.freedesktop.systemd1.Manager",
];
/// How long a service may take to answer.
const CALL: Duration = Duration::from_secs(10);

/// Connects to a bus; without an address to that of the system.
pub(crate) async fn connect(address: Option<&str>) -> zbus::Result<Connection> {
    let builder = match address {
        Some(address) => Builder::address(address),
        None => Builder::system(),
    };
    builder.method_timeout(CALL).build().await
}

/// An object of a service, by name, path and interface.
pub(crate) async fn proxy(
    connection: &Connection,
    [destination, path, interface]: [&'static str; 3],
) -> zbus::Result<Proxy<'static>> {
    zbus::proxy::Builder::new(connection)
        .destination(destination)
        .path(path)
        .interface(interface)
        .cache_properties(CacheProperties::No)
        .build()
        .await
}
