//! Flags of Kubernetes' components that are not supported, from data/unsupported.flags.
//!
//! A value that matches the behaviour of the component is accepted. Everything else is rejected with the name of the flag and
//! the alternative.

use std::marker::PhantomData;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};

const TABLE: &str = include_str!("../../data/unsupported.flags");

/// A component of Kubernetes.
pub(crate) trait UpstreamComponent {
    /// The heading of its flags in the table.
    const NAME: &'static str;
}

/// The API server.
#[derive(Clone)]
pub(super) struct KubeApiserver;

impl UpstreamComponent for KubeApiserver {
    const NAME: &'static str = "kube-apiserver";
}

/// The controllers.
#[derive(Clone)]
pub(super) struct KubeControllerManager;

impl UpstreamComponent for KubeControllerManager {
    const NAME: &'static str = "kube-controller-manager";
}

/// The scheduler.
#[derive(Clone)]
pub(super) struct KubeScheduler;

impl UpstreamComponent for KubeScheduler {
    const NAME: &'static str = "kube-scheduler";
}

/// The `etcd` that envtest starts.
#[derive(Clone)]
pub(crate) struct EtcdServer;

impl UpstreamComponent for EtcdServer {
    const NAME: &'static str = "etcd";
}

/// The unsupported flags of a component.
#[derive(Clone)]
pub(crate) struct Unsupported<C>(PhantomData<C>);

/// A line of the table.
struct Flag {
    name: &'static str,
    /// The accepted values.
    accepted: Vec<&'static str>,
    /// What to do instead.
    instead: &'static str,
}

/// The flags of a component.
fn flags(component: &str) -> impl Iterator<Item = Flag> {
    let lines = TABLE
        .lines()
        .skip_while(move |line| *line != component)
        .skip(1);
    lines
        .take_while(|line| !line.is_empty())
        .filter_map(|line| {
            let (head, instead) = line.split_once(": ")?;
            let (name, accepted) = head.split_once(" =").unwrap_or((head, ""));
            let accepted = accepted
                .split('|')
                .filter(|value| !value.is_empty())
                .collect();
            Some(Flag {
                name,
                accepted,
                instead,
            })
        })
}

impl Flag {
    fn check(&self, matches: &ArgMatches) -> Result<(), Error> {
        let Flag {
            name,
            accepted,
            instead,
        } = self;
        for value in matches.get_many::<String>(name).into_iter().flatten() {
            if accepted.is_empty() {
                let text = format!("--{name} is not supported: {instead}\n");
                return Err(Error::raw(ErrorKind::UnknownArgument, text));
            }
            let is_accepted = accepted.iter().any(|one| match *one {
                "*" => true,
                ">0" => is_positive(value),
                one => one == value,
            });
            if !is_accepted {
                let text = format!("--{name}={value} is not supported: {instead}\n");
                return Err(Error::raw(ErrorKind::InvalidValue, text));
            }
        }
        Ok(())
    }
}

/// Whether a number or a duration is greater than zero.
fn is_positive(value: &str) -> bool {
    !value.starts_with('-') && value.contains(|digit| matches!(digit, '1'..='9'))
}

impl<C: UpstreamComponent> FromArgMatches for Unsupported<C> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        flags(C::NAME).try_for_each(|flag| flag.check(matches))?;
        Ok(Unsupported(PhantomData))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        Self::from_arg_matches(matches).map(drop)
    }
}

impl<C: UpstreamComponent> Args for Unsupported<C> {
    fn augment_args(command: Command) -> Command {
        let arg = |flag: Flag| {
            let arg = Arg::new(flag.name)
                .long(flag.name)
                .hide(true)
                .action(ArgAction::Append);
            arg.num_args(0..=1).default_missing_value("true")
        };
        command.args(flags(C::NAME).map(arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_written_in_many_ways() {
        for zero in ["0", "0s", "0h0m0s", "0.0ms", "-1s", "", "none"] {
            assert!(!is_positive(zero), "{zero}");
        }
        for positive in ["1", "100", "0.5s", "1m0s"] {
            assert!(is_positive(positive), "{positive}");
        }
    }

    #[test]
    fn every_line_of_the_table_is_a_flag() {
        let names = [
            KubeApiserver::NAME,
            KubeControllerManager::NAME,
            KubeScheduler::NAME,
            EtcdServer::NAME,
        ];
        let n_flags: usize = names.iter().map(|name| flags(name).count()).sum();
        let is_flag =
            |line: &&str| !line.is_empty() && !line.starts_with('#') && !names.contains(line);
        assert_eq!(n_flags, TABLE.lines().filter(is_flag).count());
    }
}
