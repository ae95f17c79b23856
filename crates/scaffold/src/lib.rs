//! What does a new operator look like?
//!
//! A [`Project`] is what its file `PROJECT` says: name, domain, kinds with their versions and webhooks. [`Project::files`]
//! are all files of such an operator, and [`Plan`] compares them with a directory: what would be created and changed, and
//! which edits of the user are in the way.
//!
//! ```
//! use mizzen_scaffold::{Api, Language, Plan, Project, SdkSource};
//!
//! let sdk = SdkSource::Version("0.1.0".into());
//! let mut project = Project::new("shop-operator", "example.com", Language::Rust, sdk)?;
//! project.add_api(&Api {
//!     group: "shop".into(),
//!     version: "v1alpha1".into(),
//!     kind: "Oven".into(),
//!     is_namespaced: true,
//!     has_controller: true,
//!     ..Api::default()
//! })?;
//! let files = project.files();
//! assert!(files["src/controllers/oven.rs"].contains("impl ReconcileObject<Oven>"));
//!
//! # let directory = std::env::temp_dir().join(format!("mizzen-scaffold-{}", std::process::id()));
//! let plan = Plan::new(&directory, &project)?;
//! assert!(plan.conflicts().is_empty());
//! plan.write(Default::default())?;
//! # std::fs::remove_dir_all(&directory)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | content |
//! |---|---|
//! | `name` | names of projects, groups, versions and kinds, and what is wrong with them |
//! | `project` | the file `PROJECT` |
//! | `template` | the text of a file, from a template |
//! | `files` | the files of a project |
//! | `spoke` | how the source of a version becomes that of a spoke of another hub |
//! | `checksum` | the file `PROJECT.sum`: what was generated |
//! | `plan` | the files compared with a directory |
//! | `diff` | the difference between two texts |
//!
//! Invariant: a file that the user has edited changes only if the user says so, or by added lines (`spoke`).

mod checksum;
mod diff;
mod files;
mod name;
mod plan;
mod project;
mod spoke;
mod template;

pub use name::NameError;
pub use plan::{Change, EditPolicy, Plan, PlanError, PlannedFile};
pub use project::{Api, ChangeError, Kind, Language, ParseError, Project, SdkSource, Webhooks};
