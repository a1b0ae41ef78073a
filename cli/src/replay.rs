//! `kvprov replay`: the same pipeline as live, over recorded input. Needs no privilege.

use crate::pipeline::{self, Input};
use crate::render::{self, Format};
use clap::ValueEnum;
use kvprov_model::finding::Confidence;
use std::process::ExitCode;

/// Exit status when a finding reaches `--fail-on`.
const FOUND: u8 = 1;

/// Arguments of `kvprov replay`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) input: Input,
    /// How to print the result.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Exit with status 1 when a finding is at least this sure.
    #[arg(long, value_enum, value_name = "CONFIDENCE")]
    fail_on: Option<FailOn>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum FailOn {
    Confirmed,
    Suspected,
    Risk,
}

impl From<FailOn> for Confidence {
    fn from(level: FailOn) -> Self {
        match level {
            FailOn::Confirmed => Self::Confirmed,
            FailOn::Suspected => Self::Suspected,
            FailOn::Risk => Self::Risk,
        }
    }
}

/// Runs it. The status is 0 whatever is found, unless `--fail-on` says otherwise.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let result = pipeline::run(&arguments.input)?;
    let rendered = render::replay(&result, arguments.format);
    let reached = arguments.fail_on.is_some_and(|level| {
        let level = Confidence::from(level);
        result.findings.iter().any(|finding| finding.confidence >= level)
    });
    if reached {
        // Whoever stopped reading still learns that something was found.
        return Ok(ExitCode::from(FOUND));
    }
    rendered.map(|()| ExitCode::SUCCESS)
}
