//! The DNS configuration of pods (upstream: pkg/kubelet/network/dns).
//!
//! Without a cluster DNS, `ClusterFirst` is `Default`: the resolver of the machine. `dnsConfig` is
//! added to it.

use std::io;
use std::path::{Path, PathBuf};

use mizzen_cri::messages::DnsConfig;
use mizzen_value::Value;

/// The resolver of the machine.
const RESOLVER: &str = "/etc/resolv.conf";
/// The name servers that systemd-resolved asks. `/etc/resolv.conf` has only its own address then,
/// on which nothing listens in the network of a pod.
const RESOLVED: &str = "/run/systemd/resolve/resolv.conf";
/// Kubernetes: the most name servers, search domains and characters of them together
/// (pkg/apis/core/validation), and the longest domain (validation.DNS1123SubdomainMaxLength).
const MAX_SERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;
const MAX_SEARCH_LINE: usize = 2048;
const MAX_SEARCH: usize = 253;

/// The resolver of the machine, for pods.
pub(super) struct MachineResolver {
    text: String,
    /// Whether runtimes use it by themselves.
    is_usual: bool,
}

impl MachineResolver {
    /// Reads the file that the user has chosen, or finds one.
    pub(super) fn read(chosen: Option<&Path>) -> io::Result<MachineResolver> {
        let file = match chosen {
            Some(file) => file.to_owned(),
            None => find(Path::new(RESOLVER), Path::new(RESOLVED)),
        };
        let text = match std::fs::read_to_string(&file) {
            // A machine without the usual file has no name servers.
            Err(error) if chosen.is_none() && error.kind() == io::ErrorKind::NotFound => {
                String::new()
            }
            read => read?,
        };
        Ok(MachineResolver {
            text,
            is_usual: file == Path::new(RESOLVER),
        })
    }
}

/// The file with name servers that pods can reach. Kubernetes: kubeadm sets `resolvConf` so.
fn find(usual: &Path, resolved: &Path) -> PathBuf {
    let text = std::fs::read_to_string(usual).unwrap_or_default();
    let servers = parse(&text).servers;
    let is_local = |server: &String| {
        let address = server.parse::<std::net::IpAddr>();
        address.is_ok_and(|address| address.is_loopback())
    };
    let is_stub = !servers.is_empty() && servers.iter().all(is_local);
    match is_stub && resolved.exists() {
        true => resolved.to_owned(),
        false => usual.to_owned(),
    }
}

/// The configuration of a pod, `None` for that of the machine as it is; and which limits it exceeded,
/// as the messages of Events.
pub(super) fn dns(spec: &Value, machine: &MachineResolver) -> (Option<DnsConfig>, Vec<String>) {
    let own = &spec["dnsConfig"];
    let mut dns = match spec["dnsPolicy"].str() {
        "None" => DnsConfig::default(),
        _ => parse(&machine.text),
    };
    let texts = |field: &str| {
        let list = own[field].list().iter();
        list.map(|text| text.str().to_owned())
    };
    dns.servers.extend(texts("nameservers"));
    dns.searches.extend(texts("searches"));
    for option in own["options"].list() {
        let name = option["name"].str();
        // An option of the pod replaces that of the machine.
        dns.options
            .retain(|known| known.split(':').next() != Some(name));
        dns.options.push(match option["value"].str() {
            "" => name.to_owned(),
            value => format!("{name}:{value}"),
        });
    }
    (dns.servers, dns.searches) = (distinct(dns.servers), distinct(dns.searches));
    let exceeded = apply_limits(&mut dns);
    let is_of_machine = spec["dnsPolicy"].str() != "None" && own.is_null() && machine.is_usual;
    match is_of_machine && exceeded.is_empty() {
        true => (None, exceeded),
        false => (Some(dns), exceeded),
    }
}

/// The values, each once.
fn distinct(values: Vec<String>) -> Vec<String> {
    let mut known: Vec<String> = Vec::new();
    for value in values {
        if !known.contains(&value) {
            known.push(value);
        }
    }
    known
}

/// Leaves out what resolvers do not read. Kubernetes: pkg/kubelet/network/dns/dns.go,
/// `formDNSSearchFitsLimits` and `formDNSNameserversFitsLimits`.
fn apply_limits(dns: &mut DnsConfig) -> Vec<String> {
    let mut exceeded = Vec::new();
    if dns.servers.len() > MAX_SERVERS {
        dns.servers.truncate(MAX_SERVERS);
        exceeded.push(format!(
            "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: {}",
            dns.servers.join(" ")
        ));
    }
    let n_before = dns.searches.len();
    dns.searches.truncate(MAX_SEARCHES);
    dns.searches.retain(|search| search.len() <= MAX_SEARCH);
    while dns.searches.join(" ").len() > MAX_SEARCH_LINE {
        dns.searches.pop();
    }
    if dns.searches.len() < n_before {
        exceeded.push(format!(
            "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: {}",
            dns.searches.join(" ")
        ));
    }
    exceeded
}

/// Parses a resolv.conf.
fn parse(text: &str) -> DnsConfig {
    let mut dns = DnsConfig::default();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let key = words.next().unwrap_or_default();
        let words = words.map(str::to_owned);
        match key {
            "nameserver" => dns.servers.extend(words.take(1)),
            // The last line counts.
            "search" => dns.searches = words.collect(),
            "options" => dns.options.extend(words),
            _ => {}
        }
    }
    dns
}

#[cfg(test)]
mod tests {
    use mizzen_value::json;

    use super::*;

    const MACHINE: &str =
        "# made by hand\nnameserver 10.0.0.1\nsearch a.test b.test\noptions ndots:1 rotate\n";

    #[track_caller]
    fn check(spec: &str, expected: &str) {
        check_with(spec, true, expected);
    }

    #[track_caller]
    fn check_with(spec: &str, is_usual: bool, expected: &str) {
        let text = MACHINE.into();
        let machine = MachineResolver { text, is_usual };
        let (made, _) = dns(&json::parse(spec.as_bytes()).unwrap(), &machine);
        let shown = made.map(|dns| {
            [dns.servers, dns.searches, dns.options]
                .map(|list| list.join(" "))
                .join(" | ")
        });
        assert_eq!(shown.unwrap_or_default(), expected, "{spec}");
    }

    #[test]
    fn a_configuration_is_added_to_that_of_the_machine_or_replaces_it() {
        check(r#"{"dnsPolicy":"ClusterFirst"}"#, "");
        check(r#"{"dnsPolicy":"Default"}"#, "");
        let own = r#"{"nameservers":["10.0.0.1","10.0.0.2"],"searches":["c.test"],"options":[{"name":"ndots","value":"5"},{"name":"debug"}]}"#;
        check(
            &format!(r#"{{"dnsPolicy":"ClusterFirst","dnsConfig":{own}}}"#),
            "10.0.0.1 10.0.0.2 | a.test b.test c.test | rotate ndots:5 debug",
        );
        check(
            &format!(r#"{{"dnsPolicy":"None","dnsConfig":{own}}}"#),
            "10.0.0.1 10.0.0.2 | c.test | ndots:5 debug",
        );
        let all = "10.0.0.1 | a.test b.test | ndots:1 rotate";
        check_with(r#"{"dnsPolicy":"Default"}"#, false, all);
    }

    #[test]
    fn what_exceeds_a_limit_is_left_out_and_said() {
        let check = |text: String, expected: [usize; 2], said: &[&str]| {
            let machine = MachineResolver {
                text,
                is_usual: true,
            };
            let (made, exceeded) = dns(&Value::object(), &machine);
            assert_eq!(made.is_some(), !said.is_empty());
            let made = made.unwrap_or_else(|| parse(&machine.text));
            assert_eq!([made.servers.len(), made.searches.len()], expected);
            assert_eq!(exceeded.len(), said.len(), "{exceeded:?}");
            for (exceeded, said) in exceeded.iter().zip(said) {
                assert!(exceeded.starts_with(said), "{exceeded}");
            }
        };
        let servers = |n: usize| -> String {
            (0..n)
                .map(|at| format!("nameserver 10.0.0.{at}\n"))
                .collect()
        };
        let searches = |n: usize, length: usize| -> String {
            let names = (0..n).map(|at| format!(" {at:0>length$}"));
            format!("search{}\n", names.collect::<String>())
        };
        let [of_servers, of_searches] = [
            "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: 10.0.0.0 10.0.0.1 10.0.0.2",
            "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: ",
        ];
        check(servers(3) + &searches(32, 10), [3, 32], &[]);
        check(servers(4), [3, 0], &[of_servers]);
        check(searches(33, 10), [0, 32], &[of_searches]);
        check(searches(1, 254), [0, 0], &[of_searches]);
        // 15 of 128 characters, with 14 spaces, are 1934; one more is too much.
        check(searches(16, 128), [0, 15], &[of_searches]);
        let both = servers(4) + &searches(33, 10);
        check(both, [3, 32], &[of_servers, of_searches]);
    }

    #[test]
    fn a_resolver_on_the_loopback_interface_is_replaced_by_those_that_it_asks() {
        let dir = tempfile::tempdir().unwrap();
        let [usual, resolved, none] =
            ["usual", "resolved", "none"].map(|name| dir.path().join(name));
        std::fs::write(&resolved, "nameserver 10.0.0.1\n").unwrap();
        for (text, is_replaced) in [
            ("nameserver 127.0.0.53\noptions edns0\n", true),
            ("nameserver 127.0.0.53\nnameserver ::1\n", true),
            ("nameserver 127.0.0.53\nnameserver 10.0.0.2\n", false),
            ("search a.test\n", false),
        ] {
            std::fs::write(&usual, text).unwrap();
            let found = find(&usual, &resolved);
            assert_eq!(found == resolved, is_replaced, "{text}");
            assert_eq!(find(&usual, &none), usual, "{text}");
        }
        let read = MachineResolver::read(Some(&resolved)).unwrap();
        assert_eq!(
            (read.text.as_str(), read.is_usual),
            ("nameserver 10.0.0.1\n", false)
        );
        assert!(MachineResolver::read(Some(&none)).is_err());
    }
}
