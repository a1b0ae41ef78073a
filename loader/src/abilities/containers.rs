//! Probe of the container runtime, which tells what the containers around workers are called.

use super::processes::is_in_pod;
use super::{Ability, Machine, Part, State};
use crate::containers::KNOWN;
use std::io::ErrorKind;

/// What is not seen where nobody may be asked.
const COST: &str = "namespace, container and image of workers in containers, where no bundle of the runtime tells them; \
    the digest of images";

/// Whether a runtime may be asked. It is not asked here.
pub(super) fn runtime(machine: &dyn Machine) -> Ability {
    let (name, part) = ("container_runtime", Part::Information);
    let (mut open, mut closed) = (Vec::new(), Vec::new());
    for (runtime, path) in KNOWN {
        match machine.listens(path) {
            Ok(()) => open.push(format!("{runtime} may be asked at {path}")),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => closed.push(format!("{runtime} may not be asked at {path}: {error}")),
        }
    }
    if !open.is_empty() {
        return Ability::good(name, part, open.join("; "));
    }
    if !closed.is_empty() {
        let advice = "start kvprov as root";
        return Ability::lacking(name, part, State::Limited, closed.join("; "), COST, advice);
    }
    let places = KNOWN.map(|(_, path)| path).join(", ");
    if is_in_pod(machine) {
        let found = format!("no socket of a container runtime is mounted here ({places})");
        let advice =
            "mount the socket of the node's runtime at its own path, or name it as agent.container_runtime";
        return Ability::lacking(name, part, State::Limited, found, COST, advice);
    }
    Ability::good(name, part, format!("no container runtime that speaks CRI ({places})"))
}
