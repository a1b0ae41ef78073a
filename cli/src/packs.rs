//! `kvprov packs`: check, list and explain signature packs, for people who extend them.

use anyhow::bail;
use kvprov_agent::logs::prefix;
use kvprov_model::observation::Body;
use kvprov_packs::{Packs, Speaker, Version};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Subcommands of `kvprov packs`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Checks every rule of packs/SCHEMA.md; each error names file, line and what to do.
    Check {
        /// A directory of packs; left out: the built-in ones.
        directory: Option<PathBuf>,
    },
    /// Lists what is covered, by engine and version.
    List {
        /// Packs that take the place of built-in files of the same name.
        #[arg(long, value_name = "DIR")]
        packs: Option<PathBuf>,
    },
    /// Tells what a log line means to kvprov: its prefix, template, fields and observation.
    Explain {
        /// The line as the engine or a log wrapper prints it.
        line: String,
        /// The engine that printed it.
        #[arg(long)]
        engine: Option<String>,
        /// Its version.
        #[arg(long)]
        engine_version: Option<String>,
        /// Packs that take the place of built-in files of the same name.
        #[arg(long, value_name = "DIR")]
        packs: Option<PathBuf>,
    },
}

/// Runs a subcommand.
pub(crate) fn run(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Check { directory } => check(directory.as_deref()),
        Command::List { packs } => list(packs.as_deref()),
        Command::Explain { line, engine, engine_version, packs } => {
            explain(line, engine.as_deref(), engine_version.as_deref(), packs.as_deref())
        }
    }
}

/// Built-in packs with some files replaced; every error is printed.
pub(crate) fn with_overrides(directory: &Path) -> anyhow::Result<Packs> {
    Packs::with_overrides(directory).map_err(|errors| {
        for error in &errors {
            eprintln!("{error}");
        }
        anyhow::anyhow!(
            "{} errors in the packs of {}; mend them or leave --packs out",
            errors.len(),
            directory.display()
        )
    })
}

fn check(directory: Option<&Path>) -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    let errors = directory.map_or_else(Packs::check_builtin, Packs::check);
    for error in &errors {
        writeln!(out, "{error}")?;
    }
    if errors.is_empty() {
        writeln!(out, "The packs are in order.")?;
        return Ok(ExitCode::SUCCESS);
    }
    bail!("{} of the entries above are wrong; packs/SCHEMA.md says how they are written", errors.len())
}

fn list(directory: Option<&Path>) -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    let overridden = directory.map(with_overrides).transpose()?;
    let packs = overridden.as_ref().unwrap_or_else(|| Packs::builtin());
    writeln!(out, "{:<12}{:>10}{:>9}{:>7}{:>6}", "engine", "templates", "metrics", "facts", "keys")?;
    for pack in packs.list() {
        writeln!(
            out,
            "{:<12}{:>10}{:>9}{:>7}{:>6}",
            pack.engine, pack.templates, pack.metrics, pack.facts, pack.keys
        )?;
    }
    writeln!(out, "\nWhat is known of a version; one stands here where something begins or ends.\n")?;
    writeln!(out, "{:<12}{:<12}{:>10}{:>9}", "engine", "from", "templates", "metrics")?;
    for (engine, coverage) in packs.coverage() {
        for (row, covered) in coverage.iter().enumerate() {
            let engine = if row == 0 { engine.as_str() } else { "" };
            let since = covered.since.as_ref().map_or("any", Version::as_str);
            writeln!(out, "{engine:<12}{since:<12}{:>10}{:>9}", covered.templates, covered.metrics)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn explain(
    line: &str,
    engine: Option<&str>,
    version: Option<&str>,
    directory: Option<&Path>,
) -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    let overridden = directory.map(with_overrides).transpose()?;
    let packs = overridden.as_ref().unwrap_or_else(|| Packs::builtin());
    let version = version.and_then(Version::parse);
    let speaker = Speaker { engine, version: version.as_ref() };
    let unwrapped = prefix::unwrap(line);
    let peeled = prefix::peel(&unwrapped.payload, unwrapped.prefix);
    let parts = [
        ("level", peeled.prefix.level.as_ref().map(|level| format!("{level:?}"))),
        ("process", peeled.prefix.process.as_ref().map(|process| format!("{process:?}"))),
        ("module", peeled.prefix.module.as_deref().map(str::to_owned)),
        ("repeated", (peeled.prefix.repeated > 1).then(|| peeled.prefix.repeated.to_string())),
    ];
    for (name, value) in parts {
        if let Some(value) = value {
            writeln!(out, "{name:<10} {value}")?;
        }
    }
    if let Some(object) = &peeled.object {
        return explain_object(packs, object, &mut out);
    }
    let Some(found) = packs.matcher().match_message(&peeled.message, &speaker) else {
        writeln!(out, "{:<10} none: no template knows this message", "template")?;
        return Ok(ExitCode::SUCCESS);
    };
    writeln!(out, "{:<10} {}", "template", found.template.id)?;
    writeln!(out, "{:<10} {}", "text", found.template.text)?;
    writeln!(out, "{:<10} {}", "kind", found.kind())?;
    writeln!(out, "{:<10} {}", "says", found.says())?;
    if let Some(body) = found.body() {
        attributes(&body, &mut out)?;
    }
    for (name, value) in found.facts() {
        writeln!(out, "fact {name:<15} {value}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Tells what a JSON line means.
fn explain_object(
    packs: &Packs,
    object: &serde_json::Map<String, serde_json::Value>,
    out: &mut impl Write,
) -> anyhow::Result<ExitCode> {
    match packs.matcher().match_json(object) {
        Some(found) => {
            writeln!(out, "{:<10} {}", "says", found.says)?;
            if let Some(body) = found.body {
                writeln!(out, "{:<10} {}", "kind", body.kind())?;
                attributes(&body, out)?;
            }
        }
        None => writeln!(out, "{:<10} none: no signature knows this object", "template")?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the attributes of a body.
fn attributes(body: &Body, out: &mut impl Write) -> io::Result<()> {
    let mut result = Ok(());
    body.for_each_attribute(|name, value| {
        if result.is_ok() {
            result = writeln!(out, "{name:<20} {value:?}");
        }
    });
    result
}
