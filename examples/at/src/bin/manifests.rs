//! Writes the manifests of `config/`: `mizzen generate` runs it.

use std::process::ExitCode;

fn main() -> ExitCode {
    at::manifests().main()
}
