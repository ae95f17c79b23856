//! Serving clients outside the process.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use mizzen_apiserver::listen::{SecureServing, listen};
use mizzen_authentication::{Authorities, TrustedAuthorities};
use mizzen_bootstrap::kubeconfig::kubeconfig;
use mizzen_bootstrap::pki::{Protocol, ServingCertificates, server_config};
use tokio::net::TcpListener;

use crate::Cluster;
use crate::components::AUTHORITY;

impl Cluster {
    /// Serves the API on a free port of the loopback interface, and returns a kubeconfig of an administrator. Until this is
    /// called the cluster has no port.
    ///
    /// A client outside the process lives on real time, so the cluster goes on in real time, and its wall clock is set.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use mizzen_testing::Cluster;
    ///
    /// let cluster = Cluster::start().await;
    /// let kubeconfig = cluster.kubeconfig().await; // for KUBECONFIG of kubectl
    /// assert!(kubeconfig.contains("server: https://127.0.0.1:"), "{kubeconfig}");
    /// # }
    /// ```
    ///
    /// # Panics
    /// If no port can be opened.
    pub async fn kubeconfig(&self) -> String {
        self.join_real_time();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.expect("a port of the loopback interface is free");
        let address = listener.local_addr().expect("the socket is bound");
        let trusted = TrustedAuthorities {
            clients: AUTHORITY.certificate.clone(),
            ..TrustedAuthorities::default()
        };
        let server = self.server().clone();
        let authorities = Authorities::new(&server.parts().registry, &trusted);
        let protocol = Protocol::default();
        let sign = || {
            let own = AUTHORITY.sign_server(&[Ipv4Addr::LOCALHOST.into()])?;
            Ok::<_, mizzen_bootstrap::pki::PkiError>((own, AUTHORITY.sign_admin()?))
        };
        let (own, admin) = sign().expect("the authority can sign");
        let certificates =
            ServingCertificates::new(protocol.provider.clone(), &own, None, Vec::new());
        let certificates = Arc::new(certificates.expect("the certificate is valid"));
        let tls = server_config(authorities.clone(), protocol, certificates);
        let serving = SecureServing {
            listener,
            tls: tls.expect("the certificate is valid"),
            identify: authorities.identify(),
            grace: Duration::ZERO,
        };
        self.spawn(listen(server, serving, std::future::pending()));
        kubeconfig(
            &format!("https://{address}"),
            "",
            &AUTHORITY,
            "admin",
            &admin,
        )
    }
}
