//! `mizzen image`: images of the container runtime of this machine.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use mizzen_cri::containerd::{Containerd, ImportError};
use mizzen_cri::image_name::{ImageName, InvalidImageName};
use mizzen_cri::messages::{AuthConfig, ImageSpec, PullImageRequest};
use mizzen_cri::{CallError, ConnectError, CriClient, DEFAULT_ENDPOINT};

use crate::log::write_output;
use crate::terminal::Progress;

/// How names of tarballs begin or end, which are no names of images.
const PATH_STARTS: [&str; 3] = ["/", "./", "../"];
const TARBALL_ENDS: [&str; 3] = [".tar", ".tar.gz", ".tgz"];

/// Put images into the container runtime of this machine, for pods with real containers
#[derive(Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct ImageCommand {
    #[command(subcommand)]
    task: ImageTask,
}

const EXAMPLE: &str = "Example:\n  docker build -t web:1 . && docker save web:1 | mizzen image load -\n  \
                       kubectl run web --image=web:1 --image-pull-policy=Never\n\n  \
                       mizzen image load images.tar.gz mizzen.example/app:2 --cri-endpoint unix:///run/other.sock\n  \
                       mizzen image load mizzen.example/app:2 --username jane --password-stdin < password";

#[derive(Subcommand)]
enum ImageTask {
    /// Import images from tarballs, or pull them
    ///
    /// Pods of the nodes on this machine can use them with the imagePullPolicy Never or IfNotPresent. Tarballs are those of
    /// `docker save`, `podman save` or an OCI layout, compressed by gzip or not; they need containerd.
    Load(LoadArgs),
}

#[derive(Args)]
#[command(after_help = EXAMPLE)]
struct LoadArgs {
    /// Import the images of a tarball, or of standard input for -; an argument that is no file is the name of an image, which
    /// the runtime pulls
    #[arg(value_name = "FILE|IMAGE", required = true)]
    sources: Vec<String>,
    /// Reach the container runtime at this socket
    #[arg(long, value_name = "ENDPOINT", default_value = DEFAULT_ENDPOINT)]
    cri_endpoint: String,
    /// Pull as this user of the registry
    #[arg(long, value_name = "USER", requires = "password_stdin")]
    username: Option<String>,
    /// Read the password of the user from standard input
    #[arg(long, requires = "username")]
    password_stdin: bool,
}

/// Why an image was not loaded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    /// The argument is neither a file nor the name of an image.
    #[error("{argument:?} is not a file, and not the name of an image: {source}")]
    Name {
        /// The argument.
        argument: String,
        /// Why it is not a name.
        source: InvalidImageName,
    },
    /// The argument is the name of a file that does not exist, or cannot be opened.
    #[error("{}: {source}", file.display())]
    Open {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Standard input has two uses.
    #[error("standard input is a tarball or a password, and not both or several")]
    StandardInput,
    /// The password cannot be read.
    #[error("cannot read the password: {0}")]
    Password(#[source] io::Error),
    /// There is no runtime.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The runtime does not take tarballs.
    #[error(
        "the container runtime at {endpoint} is {runtime}: only containerd takes tarballs. Push the image to a registry, and \
         load it by its name"
    )]
    NotContainerd {
        /// Where the runtime is.
        endpoint: String,
        /// Its name.
        runtime: String,
    },
    /// A tarball was not imported.
    #[error("{from}: {source}")]
    Import {
        /// The tarball.
        from: String,
        /// Why.
        source: ImportError,
    },
    /// An image was not pulled.
    #[error("cannot pull {name}: {}", source.message)]
    Pull {
        /// The image.
        name: String,
        /// What the runtime says.
        source: CallError,
    },
    /// No threads.
    #[error("cannot start: {0}")]
    Start(#[from] io::Error),
}

/// Where images come from.
#[derive(Debug, PartialEq, Eq)]
enum Source {
    StandardInput,
    File(PathBuf),
    Registry(String),
}

impl ImageCommand {
    /// Loads the images.
    pub(crate) fn run(self) -> Result<(), LoadError> {
        let ImageTask::Load(args) = self.task;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(args.load())
    }
}

impl LoadArgs {
    /// Loads all that the arguments name. All of them are read before anything is loaded.
    async fn load(self) -> Result<(), LoadError> {
        let sources = self.sources.iter().map(|argument| source(argument));
        let sources: Vec<Source> = sources.collect::<Result<_, _>>()?;
        let from_input = sources
            .iter()
            .filter(|source| **source == Source::StandardInput);
        if from_input.count() + usize::from(self.password_stdin) > 1 {
            return Err(LoadError::StandardInput);
        }
        let auth = match self.username {
            Some(username) => Some(AuthConfig {
                username,
                password: read_password().map_err(LoadError::Password)?,
                ..AuthConfig::default()
            }),
            None => None,
        };
        let client = CriClient::connect(&self.cri_endpoint).await?;
        for source in sources {
            match source {
                Source::StandardInput => {
                    import(&client, "standard input".into(), io::stdin()).await?;
                }
                Source::File(file) => {
                    let name = file.display().to_string();
                    let opened = File::open(&file);
                    let opened = opened.map_err(|source| LoadError::Open { file, source })?;
                    import(&client, name, opened).await?;
                }
                Source::Registry(name) => pull(&client, name, auth.clone()).await?,
            }
        }
        Ok(())
    }
}

/// Reads an argument: an existing file is a tarball, and everything else the name of an image.
fn source(argument: &str) -> Result<Source, LoadError> {
    if argument == "-" {
        return Ok(Source::StandardInput);
    }
    let file = Path::new(argument);
    let starts = PATH_STARTS.iter().any(|start| argument.starts_with(start));
    let ends = TARBALL_ENDS.iter().any(|end| argument.ends_with(end));
    match std::fs::metadata(file) {
        Ok(_) => Ok(Source::File(file.into())),
        Err(source) if starts || ends => Err(LoadError::Open {
            file: file.into(),
            source,
        }),
        Err(_) => {
            let name = ImageName::parse(argument).map_err(|source| LoadError::Name {
                argument: argument.into(),
                source,
            })?;
            Ok(Source::Registry(name.with_default_tag().to_string()))
        }
    }
}

/// The first line of standard input.
fn read_password() -> io::Result<String> {
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    Ok(line.trim_end_matches(['\r', '\n']).into())
}

async fn import(
    client: &CriClient,
    from: String,
    archive: impl Read + Send + 'static,
) -> Result<(), LoadError> {
    let Some(containerd) = Containerd::of(client).await else {
        return Err(LoadError::NotContainerd {
            endpoint: client.endpoint().into(),
            runtime: client.version().runtime_name.clone(),
        });
    };
    let progress = Progress::start(format!("importing {from}"));
    let imported = containerd.import(archive).await;
    drop(progress);
    for image in imported.map_err(|source| LoadError::Import { from, source })? {
        write_output(format_args!("imported {}", image.name));
    }
    Ok(())
}

async fn pull(client: &CriClient, name: String, auth: Option<AuthConfig>) -> Result<(), LoadError> {
    let progress = Progress::start(format!("pulling {name}"));
    let request = PullImageRequest {
        image: Some(ImageSpec {
            image: name.clone(),
            ..ImageSpec::default()
        }),
        auth,
        sandbox_config: None,
    };
    let pulled = client.call(request).await;
    drop(progress);
    match pulled {
        Ok(_) => {
            write_output(format_args!("pulled {name}"));
            Ok(())
        }
        Err(source) => Err(LoadError::Pull { name, source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_is_a_file_or_the_name_of_an_image() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("images");
        std::fs::write(&file, "").unwrap();
        let found = source(file.to_str().unwrap()).unwrap();
        assert_eq!(found, Source::File(file));
        assert_eq!(source("-").unwrap(), Source::StandardInput);
        let image = source("busybox").unwrap();
        let name = "docker.io/library/busybox:latest";
        assert_eq!(image, Source::Registry(name.into()));
        for (wrong, why) in [
            ("none.tar", "none.tar: No such file"),
            ("./none", "./none: No such file"),
            (
                "Web:1",
                "\"Web:1\" is not a file, and not the name of an image",
            ),
        ] {
            let error = source(wrong).unwrap_err().to_string();
            assert!(error.starts_with(why), "{error}");
        }
    }
}
