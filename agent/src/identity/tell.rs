//! The observation of what a load gives.

use super::load::{Load, NOT_READ, Value};
use super::{IdentityOptions, LoadKey};
use crate::source::{Place, Sink, SourceContext};
use kvprov_model::factor::{DIGEST, FactorState};
use kvprov_model::observation::{Body, Factor, SourceKind};

/// What is told of, and for whom.
pub(super) struct Tell<'l> {
    pub options: &'l IdentityOptions,
    pub key: &'l LoadKey,
    /// The factor that it is told as.
    pub factor: &'l str,
    pub load: &'l Load,
}

// === impl Tell ===

impl Tell<'_> {
    /// Whether the end of what held before was told.
    pub(super) fn ended(&self) -> bool {
        matches!(self.load.told, Some(Value::Provisional(..)))
    }

    /// Tells a value. `ends`: what was known before holds no more, also where the new value is not known; without a value it
    /// is the algorithm that says so.
    pub(super) fn now(&self, value: &Value, ends: bool, sink: Sink<'_>) {
        let (load, factor) = (self.load, self.factor);
        let files = load.files.len();
        let mut body = Factor {
            factor: Some(factor.to_owned()),
            algorithm: ends.then(|| DIGEST.to_owned()),
            origin: Some(format!("open {}", load.path)),
            ..Factor::default()
        };
        // By name only requests know it: which name is in this directory is for arguments and calls to say.
        if self.key.factor == "adapter" && !self.key.directory.is_empty() {
            body.adapter = Some(self.key.directory.clone());
        }
        let (lane, says) = match value {
            Value::Full(whole) => {
                body.state = Some(FactorState::Full);
                body.algorithm = Some(DIGEST.to_owned());
                body.value = Some(whole.value.clone());
                body.layout.clone_from(&whole.layout);
                body.meaning.clone_from(&whole.meaning);
                let means = whole.meaning.as_ref().map(|meaning| format!(", {meaning}")).unwrap_or_default();
                let says = format!("{factor} of {files} files read: {}{means}", whole.value);
                (if whole.meaning.is_some() { 4 } else { 2 }, says)
            }
            Value::Provisional(reason, sample) => {
                body.state = Some(FactorState::Provisional);
                body.reason = Some((*reason).to_owned());
                if let Some((algorithm, sample)) = sample {
                    (body.algorithm, body.value) = (Some(algorithm.clone()), Some(sample.clone()));
                }
                let lane = match (*reason == NOT_READ, sample) {
                    (true, None) => 0,
                    (true, Some(_)) => 3,
                    (false, None) => 5,
                    (false, Some(_)) => 6,
                };
                let looks = sample
                    .as_ref()
                    .map(|(algorithm, sample)| format!("; {algorithm}: {sample}"))
                    .unwrap_or_default();
                let bytes = load.bytes();
                let says = format!("opened {files} files of {factor}, {bytes} bytes, {reason}{looks}");
                (lane, says)
            }
            Value::Unknown(reason) => {
                body.state = Some(FactorState::Unknown);
                body.reason = Some((*reason).to_owned());
                (1, format!("opened {files} files of {factor}, not known: {reason}"))
            }
        };
        let source = SourceContext {
            node: self.options.node.clone(),
            worker: Some(self.key.worker.clone()),
            stream: "files".to_owned(),
            instance: format!(
                "{}\u{0}files\u{0}{}\u{0}{}\u{0}{factor}",
                self.key.worker, self.options.ring, self.key.directory
            ),
            generation: 0,
        };
        let place = Place { position: load.position, offset: load.position };
        // What is told of a load changes with its files; a restart tells the same again.
        let index = (lane << 24) | u32::try_from(files).unwrap_or(0).min(0x00ff_ffff);
        // A file that joined later, none having changed, may have made another value: that is so since then.
        let wall = match (&load.told, value) {
            (Some(Value::Full(before)), Value::Full(now)) if !ends && before.value != now.value => load.last,
            _ => load.first,
        };
        sink(source.observe(SourceKind::Kernel, place, index, Some(wall), Some(says), Body::Factor(body)));
    }
}
