//! A cgroup path tells the container and the pod.
//!
//! Input is `/proc/PID/cgroup`, version 1 or 2. Shapes: `docker-<id>.scope`, `cri-containerd-<id>.scope`, `crio-<id>.scope`,
//! `libpod-<id>.scope` (systemd driver), `…/docker/<id>`, `…/kubepods/burstable/pod<uid>/<id>` (cgroupfs driver),
//! `…/kubepods-burstable-pod<uid with _>.slice/…` and `…:cri-containerd:<id>`.

/// A container and the pod around it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Container {
    /// Its id: 64 hex digits.
    pub id: String,
    /// Uid of the Kubernetes pod.
    pub pod_uid: Option<String>,
    /// Quality of service of the pod: `guaranteed`, `burstable`, `besteffort`.
    pub qos: Option<String>,
}

/// The path by which a process is placed: of version 2 where it is alone, else the deepest of version 1.
pub fn path_of(cgroup: &str) -> &str {
    let lines = cgroup.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':');
        let hierarchy = parts.next()?;
        Some((hierarchy, parts.nth(1)?))
    });
    // On a mixed system version 2 is there and may be empty.
    lines
        .max_by_key(|(hierarchy, path)| (path.len() > 1, *hierarchy == "0", path.len()))
        .map_or("", |(_, path)| path)
}

/// Whether a path lies at or below another, `/` being everything.
pub fn is_within(path: &str, scope: &str) -> bool {
    let scope = scope.trim_end_matches('/');
    let scope = scope.strip_prefix("/sys/fs/cgroup").unwrap_or(scope);
    path.strip_prefix(scope).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

// === impl Container ===

impl Container {
    /// Reads a path. `None` when the process is in no container.
    pub fn of(path: &str) -> Option<Self> {
        let id = path.rsplit('/').find_map(container_id)?;
        let pod_uid = path.rsplit(['/', ':']).find_map(pod_uid);
        let qos = pod_uid.as_ref().map(|_| {
            let of = |word: &&str| path.split(['/', '-', '.', ':']).any(|part| part == *word);
            ["burstable", "besteffort"].into_iter().find(of).unwrap_or("guaranteed").to_owned()
        });
        Some(Self { id: id.to_owned(), pod_uid, qos })
    }
}

/// 64 hex digits at the end of a part of the path, behind the name of the runtime.
fn container_id(part: &str) -> Option<&str> {
    let part = part.strip_suffix(".scope").or_else(|| part.strip_suffix(".slice")).unwrap_or(part);
    let id = part.rsplit([':', '-']).next()?;
    (id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(id)
}

/// The uid of `pod<uid>` or of `…-pod<uid with _>.slice`.
fn pod_uid(part: &str) -> Option<String> {
    let name = part.strip_suffix(".slice").unwrap_or(part);
    let (before, uid) = name.rsplit_once("pod")?;
    let is_name = before.is_empty() || before.ends_with('-');
    let uid = uid.replace('_', "-");
    // Static pods have 32 hex digits without dashes.
    let is_uid = uid.len() >= 32 && uid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    (is_name && is_uid).then_some(uid)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, reason = "a test may stop at a broken premise")]
    use super::*;

    const ID: &str = "6e4d1c0a7f5b2d3e8c9a0b1f2e3d4c5b6a79880716253443526170f1e2d3c4b5";
    const UID: &str = "0f4b3a2c-1d5e-4f60-9a7b-8c9d0e1f2a3b";

    #[test]
    fn every_runtime_and_driver_tells_its_container() {
        let uid_ = UID.replace('-', "_");
        for (path, pod, qos) in [
            (format!("/system.slice/docker-{ID}.scope"), None, None),
            (format!("/docker/{ID}"), None, None),
            (format!("/machine.slice/libpod-{ID}.scope/container"), None, None),
            (
                format!(
                    "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid_}.slice/cri-containerd-{ID}.scope"
                ),
                Some(UID),
                Some("burstable"),
            ),
            (
                format!("/kubepods.slice/kubepods-pod{uid_}.slice/crio-{ID}.scope/container"),
                Some(UID),
                Some("guaranteed"),
            ),
            (format!("/kubepods/besteffort/pod{UID}/{ID}"), Some(UID), Some("besteffort")),
            (
                format!(
                    "/system.slice/containerd.service/kubepods-besteffort-pod{uid_}.slice:cri-containerd:{ID}"
                ),
                Some(UID),
                Some("besteffort"),
            ),
        ] {
            let container = Container::of(&path).unwrap_or_else(|| panic!("{path}"));
            assert_eq!(container.id, ID, "{path}");
            assert_eq!(container.pod_uid.as_deref(), pod, "{path}");
            assert_eq!(container.qos.as_deref(), qos, "{path}");
        }
    }

    #[test]
    fn a_process_of_the_machine_is_in_no_container() {
        for path in [
            "/",
            "",
            "/user.slice/user-0.slice/session-1.scope",
            "/system.slice/docker.service",
            "/init.scope",
        ] {
            assert_eq!(Container::of(path), None, "{path}");
        }
    }

    #[test]
    fn the_path_is_taken_from_either_version() {
        assert_eq!(path_of("0::/a/b\n"), "/a/b");
        assert_eq!(path_of("12:pids:/docker/x\n1:name=systemd:/docker/x\n0::/\n"), "/docker/x");
        assert_eq!(path_of("4:memory:/\n0::/kubepods\n"), "/kubepods");
        assert_eq!(path_of(""), "");
    }

    #[test]
    fn a_scope_ends_at_a_whole_name() {
        assert!(is_within("/a/b", "/a") && is_within("/a", "/a/") && is_within("/a", "/"));
        assert!(is_within("/a/b", "/sys/fs/cgroup/a"));
        assert!(!is_within("/ab", "/a") && !is_within("/", "/a") && !is_within("", "/a"));
    }
}
