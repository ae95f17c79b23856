//! `--concurrent-…-syncs`: the number of workers of controllers.

use std::collections::HashMap;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches, value_parser};

/// The flags of kube-controller-manager and their controllers.
const FLAGS: &[(&str, &str)] = &[
    ("concurrent-cron-job-syncs", "cronjob-controller"),
    ("concurrent-daemonset-syncs", "daemonset-controller"),
    ("concurrent-deployment-syncs", "deployment-controller"),
    (
        "concurrent-device-taint-eviction-syncs",
        "device-taint-eviction-controller",
    ),
    ("concurrent-endpoint-syncs", "endpoints-controller"),
    (
        "concurrent-ephemeralvolume-syncs",
        "ephemeral-volume-controller",
    ),
    (
        "concurrent-horizontal-pod-autoscaler-syncs",
        "horizontal-pod-autoscaler-controller",
    ),
    ("concurrent-job-syncs", "job-controller"),
    ("concurrent-namespace-syncs", "namespace-controller"),
    ("concurrent-rc-syncs", "replicationcontroller-controller"),
    ("concurrent-replicaset-syncs", "replicaset-controller"),
    (
        "concurrent-resource-quota-syncs",
        "resourcequota-controller",
    ),
    ("concurrent-resourceclaim-syncs", "resourceclaim-controller"),
    (
        "concurrent-service-endpoint-syncs",
        "endpointslice-controller",
    ),
    (
        "concurrent-serviceaccount-token-syncs",
        "serviceaccount-token-controller",
    ),
    ("concurrent-statefulset-syncs", "statefulset-controller"),
    (
        "concurrent-ttl-after-finished-syncs",
        "ttl-after-finished-controller",
    ),
    (
        "concurrent-validating-admission-policy-status-syncs",
        "validatingadmissionpolicy-status-controller",
    ),
    (
        "mirroring-concurrent-service-endpoint-syncs",
        "endpointslice-mirroring-controller",
    ),
];

/// The number of workers by name of the controller, where a flag is set.
pub(super) struct ConcurrencyArgs(pub HashMap<String, usize>);

impl FromArgMatches for ConcurrencyArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let chosen = FLAGS.iter().filter_map(|(flag, name)| {
            let n_workers = usize::try_from(*matches.get_one::<u32>(flag)?).ok()?;
            Some(((*name).to_owned(), n_workers))
        });
        Ok(ConcurrencyArgs(chosen.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = ConcurrencyArgs::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for ConcurrencyArgs {
    fn augment_args(command: Command) -> Command {
        let arg = |(flag, name): &(&'static str, &'static str)| {
            let help = format!("Run the {name} with this many workers [default: as in Kubernetes]");
            let arg = Arg::new(*flag)
                .long(*flag)
                .value_name("N")
                .help(help)
                .action(ArgAction::Set);
            arg.value_parser(value_parser!(u32).range(1..=1000))
        };
        command.args(FLAGS.iter().map(arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_names_a_controller() {
        for (flag, name) in FLAGS {
            assert!(
                mizzen_controllers::names().any(|known| known == *name),
                "{flag}"
            );
        }
        let command = ConcurrencyArgs::augment_args(Command::new("controllers"));
        let matches = command
            .clone()
            .get_matches_from(["controllers", "--concurrent-job-syncs=7"]);
        let chosen = ConcurrencyArgs::from_arg_matches(&matches).unwrap().0;
        assert_eq!(chosen, HashMap::from([("job-controller".to_owned(), 7)]));
        assert!(
            command
                .try_get_matches_from(["controllers", "--concurrent-job-syncs=0"])
                .is_err()
        );
    }
}
