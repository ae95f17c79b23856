//! Which objects are exported or imported.

use clap::Args;
use mizzen_object::select::LabelSelector;
use mizzen_value::Value;

use super::generated::is_generated;
use super::pattern::{ObjectNames, Pattern};
use super::{Keep, group_of};

/// The arguments that select objects.
#[derive(Args, Clone)]
#[command(next_help_heading = "Selection")]
pub(crate) struct SelectionArgs {
    /// Select only these: RESOURCE, RESOURCE.GROUP or RESOURCE/NAME, such as deployments.apps, '*.example.com', secrets/db-*
    #[arg(long, value_name = "PATTERN", value_delimiter = ',')]
    include: Vec<Pattern>,
    /// Leave these out, named in the same way; it takes precedence over --include
    #[arg(long, value_name = "PATTERN", value_delimiter = ',')]
    exclude: Vec<Pattern>,
    /// Select only objects in these namespaces, and the namespaces themselves
    #[arg(short, long, value_name = "NAMESPACE", value_delimiter = ',')]
    namespace: Vec<String>,
    /// Select only objects with these labels, such as app=web,tier!=cache
    #[arg(
        short = 'l',
        long,
        value_name = "SELECTOR",
        default_value = "",
        hide_default_value = true
    )]
    selector: String,
    /// Select also objects that a cluster makes itself, such as events, leases, nodes, default roles, pods of controllers
    #[arg(long)]
    all: bool,
}

/// An argument that selects nothing sensible.
#[derive(Debug, thiserror::Error)]
#[error("--selector: {0}")]
pub(crate) struct SelectionError(String);

/// The selected objects.
#[derive(Debug, Clone)]
pub(crate) struct Selection {
    include: Vec<Pattern>,
    exclude: Vec<Pattern>,
    namespaces: Vec<String>,
    labels: LabelSelector,
    label_text: String,
    all: bool,
}

/// Whether an object is selected, and if not, why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Selected {
    /// It is.
    Yes,
    /// The arguments select others.
    No,
    /// The cluster makes it itself.
    Generated,
    /// It is being deleted, so it cannot be created.
    Deleting,
}

impl Selection {
    /// All objects.
    pub(super) fn everything() -> Selection {
        Selection {
            include: Vec::new(),
            exclude: Vec::new(),
            namespaces: Vec::new(),
            labels: LabelSelector::default(),
            label_text: String::new(),
            all: true,
        }
    }
}

impl SelectionArgs {
    /// The selection.
    pub(crate) fn selection(self) -> Result<Selection, SelectionError> {
        let labels = LabelSelector::parse(&self.selector).map_err(SelectionError)?;
        Ok(Selection {
            include: self.include,
            exclude: self.exclude,
            namespaces: self.namespace,
            labels,
            label_text: self.selector,
            all: self.all,
        })
    }
}

impl Selection {
    /// Whether objects of a type can be selected. `plural` is empty where it is not known.
    pub(super) fn wants_type(
        &self,
        group: &str,
        kind: &str,
        plural: &str,
        namespaced: bool,
    ) -> bool {
        let names = ObjectNames {
            group,
            kind,
            plural,
            name: "",
        };
        let is_namespace = group.is_empty() && kind == "Namespace";
        let in_scope = self.namespaces.is_empty() || namespaced || is_namespace;
        let is_excluded =
            |pattern: &Pattern| pattern.is_for_all_names() && pattern.matches_type(names);
        in_scope
            && (self.include.is_empty()
                || self
                    .include
                    .iter()
                    .any(|pattern| pattern.matches_type(names)))
            && !self.exclude.iter().any(is_excluded)
    }

    /// Whether a group is selected by its name, and not just because everything is.
    pub(super) fn names_group(&self, group: &str) -> bool {
        self.include
            .iter()
            .any(|pattern| pattern.names_group(group))
    }

    /// The namespaces to list, or none for all of them.
    pub(super) fn namespaces(&self) -> &[String] {
        &self.namespaces
    }

    /// The label selector as it was given.
    pub(super) fn label_text(&self) -> &str {
        &self.label_text
    }

    /// Whether an object is selected. `plural` is empty where it is not known.
    pub(crate) fn check(&self, object: &Value, plural: &str, keep: &Keep) -> Selected {
        let (group, kind) = (group_of(object["apiVersion"].str()), object["kind"].str());
        let metadata = &object["metadata"];
        let names = ObjectNames {
            group,
            kind,
            plural,
            name: metadata["name"].str(),
        };
        let namespace = match (group, kind) {
            ("", "Namespace") => metadata["name"].str(),
            _ => metadata["namespace"].str(),
        };
        let labels = &metadata["labels"];
        let is_wanted = (self.include.is_empty()
            || self.include.iter().any(|pattern| pattern.matches(names)))
            && !self.exclude.iter().any(|pattern| pattern.matches(names))
            && (self.namespaces.is_empty() || self.namespaces.iter().any(|one| one == namespace))
            && self.labels.matches(|key| labels[key].as_str());
        if !is_wanted {
            return Selected::No;
        }
        if !self.all && is_generated(object) {
            return Selected::Generated;
        }
        if !keep.uid && !metadata["deletionTimestamp"].is_null() {
            return Selected::Deleting;
        }
        Selected::Yes
    }
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    fn selection(change: impl FnOnce(&mut SelectionArgs)) -> Selection {
        let mut args = SelectionArgs {
            include: Vec::new(),
            exclude: Vec::new(),
            namespace: Vec::new(),
            selector: String::new(),
            all: false,
        };
        change(&mut args);
        args.selection().unwrap()
    }

    fn web() -> Value {
        value!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}},
        })
    }

    #[test]
    fn a_namespace_is_selected_with_its_objects_but_no_other_cluster_scoped_object() {
        let selection = selection(|args| args.namespace = vec!["shop".into()]);
        let check = |object: &Value| selection.check(object, "", &Keep::default());
        assert_eq!(check(&web()), Selected::Yes);
        let shop = value!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
        assert_eq!(check(&shop), Selected::Yes);
        let node = value!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "shop"}});
        assert_eq!(check(&node), Selected::No);
        assert!(selection.wants_type("", "Namespace", "namespaces", false));
        assert!(!selection.wants_type("", "Node", "nodes", false));
    }

    #[test]
    fn excluding_takes_precedence_over_including() {
        let selection = selection(|args| {
            args.include = vec!["*.apps".parse().unwrap()];
            args.exclude = vec!["deployments/web".parse().unwrap()];
        });
        assert_eq!(selection.check(&web(), "", &Keep::default()), Selected::No);
        assert!(selection.wants_type("apps", "Deployment", "deployments", true));
        assert!(!selection.wants_type("", "Secret", "secrets", true));
    }

    #[test]
    fn labels_select() {
        let check = |selector: &str| {
            let selection = selection(|args| args.selector = selector.into());
            selection.check(&web(), "", &Keep::default())
        };
        assert_eq!(check("app=web"), Selected::Yes);
        assert_eq!(check("app!=web"), Selected::No);
        assert_eq!(check("tier"), Selected::No);
    }

    #[test]
    fn an_object_that_is_being_deleted_is_left_out_unless_its_identity_is_kept() {
        let mut web = web();
        web.entry("metadata")
            .set("deletionTimestamp", "2026-01-01T00:00:00Z");
        let selection = selection(|_| {});
        assert_eq!(
            selection.check(&web, "", &Keep::default()),
            Selected::Deleting
        );
        assert_eq!(selection.check(&web, "", &Keep::ALL), Selected::Yes);
    }
}
