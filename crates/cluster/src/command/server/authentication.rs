//! Who is let in, besides those with certificates and service accounts' tokens.

use std::path::PathBuf;

use clap::Args;
use mizzen_apiserver::authenticate::{Authentication, StaticTokens};

use super::{refused, text};
use crate::compose::ComposeError;

/// The arguments of authentication.
#[derive(Args, Clone)]
pub struct AuthenticationArgs {
    /// Let in whoever shows a token of this file; a line is: token,user,uid,"group1,group2"
    #[arg(long, value_name = "FILE")]
    token_auth_file: Option<PathBuf>,
    /// Let in whoever shows a token that is kept as a secret of the type bootstrap.kubernetes.io/token
    #[arg(long)]
    enable_bootstrap_token_auth: bool,
}

impl AuthenticationArgs {
    /// All ways in.
    pub fn authentication(&self) -> Result<Authentication, ComposeError> {
        let bootstrap_tokens = self.enable_bootstrap_token_auth;
        Ok(Authentication { tokens: self.tokens()?, bootstrap_tokens, ..Authentication::default() })
    }

    fn tokens(&self) -> Result<StaticTokens, ComposeError> {
        let Some(file) = &self.token_auth_file else { return Ok(StaticTokens::default()) };
        StaticTokens::parse(&text(file)?).map_err(|error| refused(file, error.to_string()))
    }
}
