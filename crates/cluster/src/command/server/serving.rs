//! How the server is reached: TLS, HTTP and their limits.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use mizzen_apiserver::{Browsers, Http};
use mizzen_object::time::duration_nanos;

use super::refused;
use crate::compose::ComposeError;
use crate::pki::{Certificates, Files, Protocol, Signed, Useless, write_private};

/// The arguments of TLS and HTTP.
#[derive(Args, Clone)]
pub struct ServingArgs {
    /// The certificate that the server shows, and those that lead to its authority, as PEM; read again when it changes
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    tls_cert_file: Option<PathBuf>,
    /// The key of --tls-cert-file, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    tls_private_key_file: Option<PathBuf>,
    /// Serve with the certificate apiserver.crt and the key apiserver.key in this directory; write the server's own there if
    /// neither exists. --tls-cert-file comes before it [default: none]
    #[arg(long, value_name = "DIR")]
    cert_dir: Option<PathBuf>,
    /// A certificate and its key for those who ask for other names: CERT,KEY or CERT,KEY:NAME,…; may be given often
    #[arg(long, value_name = "CERT,KEY[:NAME,…]", value_parser = sni)]
    tls_sni_cert_key: Vec<Files>,
    /// The oldest version of TLS that is spoken: VersionTLS12 or VersionTLS13
    #[arg(long, value_name = "VERSION", default_value = "", hide_default_value = true)]
    tls_min_version: String,
    /// The ciphers of TLS 1.2 that are spoken, by Go's names; those of TLS 1.3 always are
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    tls_cipher_suites: Vec<String>,
    /// Pages of these origins may use the server from a browser: regular expressions such as //example\.com(:|$)
    #[arg(long, value_name = "EXPRESSION,…", value_delimiter = ',')]
    cors_allowed_origins: Vec<String>,
    /// What browsers are told of TLS, such as max-age=31536000,includeSubDomains,preload
    #[arg(long, value_name = "DIRECTIVE,…", value_delimiter = ',')]
    strict_transport_security_directives: Vec<String>,
    /// The address that the Endpoints of the kubernetes Service name [default: --bind-address; if that is a loopback or
    /// unspecified address, the one that the host uses for its default route]
    #[arg(long, value_name = "IP")]
    advertise_address: Option<IpAddr>,
    /// The part of requests, at most 0.02, after which an HTTP/2 client is asked to connect anew
    #[arg(long, value_name = "PART", default_value_t = 0.0)]
    goaway_chance: f64,
    /// How many requests an HTTP/2 connection may have under way; 0 is the default
    #[arg(long, value_name = "N", default_value_t = 0)]
    http2_max_streams_per_connection: u32,
    /// How long a request may take that is no watch
    #[arg(long, value_name = "DURATION", default_value = "1m0s", value_parser = duration)]
    request_timeout: Duration,
    /// How many seconds a watch lasts at least, and at most twice that, unless its client says
    #[arg(long, value_name = "SECONDS", default_value_t = 1800)]
    min_request_timeout: u32,
    /// How long the server goes on as before, but says that it is not ready, when it is told to stop
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    pub shutdown_delay_duration: Duration,
}

impl ServingArgs {
    /// How TLS is spoken.
    pub fn protocol(&self) -> Result<Protocol, ComposeError> {
        let protocol = Protocol::default()
            .at_least(&self.tls_min_version)
            .map_err(|why| argument("--tls-min-version", why))?;
        protocol.in_ciphers(&self.tls_cipher_suites).map_err(|why| argument("--tls-cipher-suites", why))
    }

    /// The certificates that are shown; `own` is that of our authority.
    pub fn certificates(&self, protocol: &Protocol, own: &Signed) -> Result<Arc<Certificates>, ComposeError> {
        let default = match self.tls_cert_file.clone().zip(self.tls_private_key_file.clone()) {
            Some((certificate, key)) => Some(Files { certificate, key, names: Vec::new() }),
            None => self.pair_in_cert_dir(own)?,
        };
        let named = self.tls_sni_cert_key.clone();
        Certificates::new(protocol.provider.clone(), own, default, named)
            .map(Arc::new)
            .map_err(|Useless { file, why }| refused(&file, why))
    }

    /// The pair in the directory of certificates; none if `own` was written there. Kubernetes: server/options/serving.go,
    /// MaybeDefaultWithSelfSignedCerts.
    fn pair_in_cert_dir(&self, own: &Signed) -> Result<Option<Files>, ComposeError> {
        let Some(directory) = &self.cert_dir else { return Ok(None) };
        let (certificate, key) = (directory.join("apiserver.crt"), directory.join("apiserver.key"));
        match (certificate.exists(), key.exists()) {
            (true, true) => Ok(Some(Files { certificate, key, names: Vec::new() })),
            (false, false) => {
                write_private(&key, &own.key)?;
                write_private(&certificate, &own.certificate)?;
                Ok(None)
            }
            (has_certificate, _) => {
                let missing = if has_certificate { &key } else { &certificate };
                Err(refused(missing, "certificate and key must be supplied as a pair".into()))
            }
        }
    }

    /// How HTTP is spoken.
    pub fn http(&self) -> Result<Http, ComposeError> {
        let chance = self.goaway_chance;
        if !(0.0..=0.02).contains(&chance) {
            return Err(argument("--goaway-chance", "can not be less than 0 or greater than 0.02".into()));
        }
        let browsers = Browsers::of_origins(&self.cors_allowed_origins)
            .map_err(|why| argument("--cors-allowed-origins", why))?
            .with_transport_security(&self.strict_transport_security_directives)
            .map_err(|why| argument("--strict-transport-security-directives", why))?;
        let default = Http::default();
        let max_streams = match self.http2_max_streams_per_connection {
            0 => default.max_streams,
            streams => streams,
        };
        Ok(Http { max_streams, goaway_chance: chance, browsers, ..Http::default() })
    }

    /// The address at which the server says that it is reached, when it listens on `bound`; none if the machine has no
    /// address that Endpoints may name. Kubernetes: as `--advertise-address` (server/options/server_run_options.go).
    pub fn advertise_address(&self, bound: IpAddr) -> Result<Option<IpAddr>, ComposeError> {
        if let Some(address) = self.advertise_address.filter(|address| !address.is_unspecified()) {
            let why = || format!("{address} is a loopback address, which Endpoints may not name");
            return match address.is_loopback() {
                true => Err(argument("--advertise-address", why())),
                false => Ok(Some(address)),
            };
        }
        let is_own = !bound.is_unspecified() && !bound.is_loopback();
        Ok(if is_own { Some(bound) } else { host_address() })
    }

    /// Seconds after which a request is given up; at least one.
    pub fn request_timeout(&self) -> u64 {
        self.request_timeout.as_secs().max(1)
    }

    /// Seconds that a watch lasts at least.
    pub fn min_request_timeout(&self) -> u64 {
        self.min_request_timeout.into()
    }
}

/// The address from which this host would reach others. Nothing is sent: connecting a datagram socket only chooses a route.
fn host_address() -> Option<IpAddr> {
    const NOWHERE: [(&str, &str); 2] = [("0.0.0.0:0", "192.0.2.1:9"), ("[::]:0", "[2001:db8::1]:9")];
    let routed = |(from, to): &(&str, &str)| {
        let socket = UdpSocket::bind(from).ok()?;
        socket.connect(to).ok()?;
        socket.local_addr().ok().map(|address| address.ip())
    };
    let is_good = |address: &IpAddr| !address.is_loopback() && !address.is_unspecified();
    NOWHERE.iter().filter_map(routed).find(is_good).or_else(interface_address)
}

/// The first address that the kernel calls local and that is no loopback, for hosts without a default route. Linux only.
fn interface_address() -> Option<IpAddr> {
    local_address(&std::fs::read_to_string("/proc/net/fib_trie").ok()?)
}

/// In the kernel's table an address is followed by a line that says what it is.
fn local_address(table: &str) -> Option<IpAddr> {
    let mut last = None;
    for line in table.lines() {
        if let Some(address) = line.trim_start().strip_prefix("|-- ") {
            last = address.trim().parse::<Ipv4Addr>().ok();
        } else if line.contains("/32 host LOCAL")
            && let Some(address) = last.filter(|address| !address.is_loopback() && !address.is_link_local())
        {
            return Some(address.into());
        }
    }
    None
}

fn argument(name: &str, why: String) -> ComposeError {
    ComposeError::Configuration { file: name.into(), why }
}

/// A span of time as Go writes it.
fn duration(text: &str) -> Result<Duration, String> {
    let nanos = duration_nanos(text).map_err(|error| error.to_string())?;
    u64::try_from(nanos).map(Duration::from_nanos).map_err(|_| "can not be negative value".into())
}

/// `CERT,KEY` or `CERT,KEY:NAME,…`.
fn sni(text: &str) -> Result<Files, String> {
    let (pair, names) = match text.split_once(':') {
        Some((_, names)) if names.trim().is_empty() => {
            return Err("empty names list is not allowed".into());
        }
        Some((pair, names)) => (pair, names.split(',').map(|name| name.trim().to_string()).collect()),
        None => (text, Vec::new()),
    };
    if let Some(address) = names.iter().find(|name| name.parse::<std::net::IpAddr>().is_ok()) {
        return Err(format!("{address} is an address; clients do not say which address they ask for"));
    }
    match pair.split(',').map(str::trim).collect::<Vec<_>>()[..] {
        [certificate, key] => Ok(Files { certificate: certificate.into(), key: key.into(), names }),
        _ => Err("expected comma separated certificate and key file paths".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_for_a_name_is_taken_apart() {
        let files = sni("a.crt, a.key:*.a.example,a.example").unwrap();
        assert_eq!((files.certificate, files.key), ("a.crt".into(), "a.key".into()));
        assert_eq!(files.names, ["*.a.example", "a.example"]);
        assert!(sni("a.crt,a.key").unwrap().names.is_empty());
        assert!(sni("a.crt").unwrap_err().contains("comma separated"));
        assert!(sni("a.crt,a.key:").unwrap_err().contains("empty names list"));
        assert!(sni("a.crt,a.key:10.0.0.1").unwrap_err().contains("is an address"));
    }

    #[test]
    fn a_local_address_that_is_no_loopback_is_found() {
        let table = "  +-- 0.0.0.0/0\n     |-- 127.0.0.1\n        /32 host LOCAL\n     |-- 192.0.2.0\n        /24 link UNICAST\n     \
                     |-- 192.0.2.2\n        /32 host LOCAL\n";
        assert_eq!(local_address(table), Some([192, 0, 2, 2].into()));
        assert_eq!(local_address("     |-- 127.0.0.1\n        /32 host LOCAL\n"), None);
    }

    #[test]
    fn a_span_is_written_as_in_go() {
        assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
        assert!(duration("-1s").unwrap_err().contains("negative"));
        assert!(duration("soon").unwrap_err().contains("invalid duration"));
    }
}
