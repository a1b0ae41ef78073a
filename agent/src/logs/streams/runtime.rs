//! Files in which container runtimes keep the output of a container.
//!
//! Source of the paths: the kubelet (`/var/log/pods/NAMESPACE_NAME_UID/CONTAINER/N.log`, links in
//! `/var/log/containers`), Docker's json-file driver, Podman's k8s-file driver.

use crate::logs::follow::Files;
use std::path::{Path, PathBuf};

/// A container, as its control group tells.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Container {
    /// 64 hex digits.
    pub id: Option<String>,
    /// Uid of its pod, with dashes.
    pub pod_uid: Option<String>,
    /// Its name in the pod, where known.
    pub name: Option<String>,
}

/// Files that hold the output of a container, the best first; those that exist. `root` is where the host's file
/// system is seen (`/`, or where it is mounted).
pub fn files_of(container: &Container, root: &Path, files: &dyn Files) -> Vec<PathBuf> {
    let id = container.id.as_deref().filter(|id| id.len() >= 12 && is_plain(id));
    let uid = container.pod_uid.as_deref().filter(|uid| uid.len() >= 8 && is_plain(uid));
    let mut found = Vec::new();
    if let Some(id) = id {
        found.extend(by_link(id, root, files));
        let docker = root.join("var/lib/docker/containers").join(id);
        found.push(docker.join(format!("{id}-json.log")));
        let podman = root.join("var/lib/containers/storage/overlay-containers").join(id);
        found.push(podman.join("userdata/ctr.log"));
    }
    if let Some(uid) = uid {
        found.extend(by_pod(uid, container.name.as_deref(), root, files));
    }
    found.retain(|path| files.stat(path).is_ok_and(|stat| stat.is_regular));
    let mut seen = Vec::new();
    found.retain(|path| {
        let real = files.real(path);
        let is_new = !seen.contains(&real);
        seen.push(real);
        is_new
    });
    found
}

/// Links named `POD_NAMESPACE_CONTAINER-ID.log`.
fn by_link(id: &str, root: &Path, files: &dyn Files) -> Vec<PathBuf> {
    let directory = root.join("var/log/containers");
    let ending = format!("-{id}.log");
    let names = files.list(&directory).unwrap_or_default();
    names
        .iter()
        .filter(|name| name.to_string_lossy().ends_with(&ending))
        .map(|name| directory.join(name))
        .collect()
}

/// The newest file of the container in the pod's directory; without a name only where the pod has one container.
fn by_pod(uid: &str, name: Option<&str>, root: &Path, files: &dyn Files) -> Vec<PathBuf> {
    let pods = root.join("var/log/pods");
    let ending = format!("_{uid}");
    let is_own = |pod: &str| pod == uid || pod.ends_with(&ending);
    let pod = files.list(&pods).unwrap_or_default().into_iter().find(|pod| is_own(&pod.to_string_lossy()));
    let Some(pod) = pod.map(|pod| pods.join(pod)) else { return Vec::new() };
    let containers = files.list(&pod).unwrap_or_default();
    let container = match name {
        Some(name) => containers.iter().find(|container| container.to_string_lossy() == name),
        None if containers.len() == 1 => containers.first(),
        None => None,
    };
    let Some(directory) = container.map(|container| pod.join(container)) else { return Vec::new() };
    let number = |name: &std::ffi::OsString| name.to_string_lossy().strip_suffix(".log")?.parse::<u32>().ok();
    let newest = files.list(&directory).unwrap_or_default().iter().filter_map(number).max();
    newest.map(|number| directory.join(format!("{number}.log"))).into_iter().collect()
}

/// Nothing that would lead to another directory.
fn is_plain(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::logs::follow::OwnFiles;
    use std::fs;

    fn write(root: &Path, path: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x\n").unwrap();
    }

    #[test]
    fn a_pods_container_is_found_by_uid_and_by_id_and_named_once() {
        let root = tempfile::tempdir().unwrap();
        let id = "ab".repeat(32);
        for path in ["0.log", "1.log", "1.log.20260101-000000"] {
            write(root.path(), &format!("var/log/pods/ns_decode-0_1234-5678-90/engine/{path}"));
        }
        write(root.path(), "var/log/pods/ns_decode-0_1234-5678-90/sidecar/0.log");
        write(root.path(), "var/log/pods/ns_other_9999-5678-90/engine/0.log");
        let container = |name: Option<&str>, id: Option<&String>| Container {
            id: id.cloned(),
            pod_uid: Some("1234-5678-90".to_owned()),
            name: name.map(str::to_owned),
        };
        let found = |container: &Container| files_of(container, root.path(), &OwnFiles);
        let log = root.path().join("var/log/pods/ns_decode-0_1234-5678-90/engine/1.log");
        assert_eq!(found(&container(Some("engine"), None)), [log.clone()]);
        assert_eq!(found(&container(None, None)), Vec::<PathBuf>::new(), "two containers, and no name");
        let links = root.path().join("var/log/containers");
        fs::create_dir_all(&links).unwrap();
        let link = links.join(format!("decode-0_ns_engine-{id}.log"));
        std::os::unix::fs::symlink(&log, &link).unwrap();
        assert_eq!(found(&container(None, Some(&id))), [link.clone()]);
        assert_eq!(found(&container(Some("engine"), Some(&id))), [link]);
    }

    #[test]
    fn dockers_file_is_found_by_id_and_a_wrong_id_leads_nowhere() {
        let root = tempfile::tempdir().unwrap();
        let id = "cd".repeat(32);
        write(root.path(), &format!("var/lib/docker/containers/{id}/{id}-json.log"));
        let of = |id: &str| {
            let container = Container { id: Some(id.to_owned()), ..Container::default() };
            files_of(&container, root.path(), &OwnFiles)
        };
        assert_eq!(of(&id).len(), 1);
        assert!(of(&"ef".repeat(32)).is_empty());
        assert!(of("../../../../../../etc").is_empty());
    }
}
