//! Writes the manifests of `config/`.

use std::process::ExitCode;

fn main() -> ExitCode {
    shop_operator::manifests::manifests().main()
}
