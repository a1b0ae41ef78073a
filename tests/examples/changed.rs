fn main() {
    use kvprov_tests::metamorphic::*;
    let mut args = std::env::args().skip(1);
    let (dir, a, b, out) =
        (args.next().unwrap(), args.next().unwrap(), args.next().unwrap(), args.next().unwrap());
    let bundle = kvprov_tests::bundle::Bundle::load(std::path::Path::new(&dir)).unwrap();
    let find = |n: &str| PREFIXES.iter().chain(&WRAPPERS).chain(&BREAKS).find(|c| c.name == n).unwrap();
    let before = kvprov_tests::pipeline::replay(&bundle).unwrap();
    let changed = one_behind_another(find(&a), find(&b), &bundle, &before).expect("does not apply");
    let d = changed.bundle.write().unwrap();
    let _ = std::fs::remove_dir_all(&out);
    std::process::Command::new("cp").args(["-r", d.path().to_str().unwrap(), &out]).status().unwrap();
}
