//! kube-rs: a reflector of pods, measured. See ../../README.md for the line protocol.
//!
//!     kuberef --server URL --count N --last-rv RV [--strip yes] [--page N]
//!
//! The store has no index; `--strip yes` clears managedFields before the store takes an object.
use std::{
    collections::HashMap,
    fs,
    time::{Duration, Instant},
};

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, Config, ResourceExt,
    runtime::{WatchStreamExt, reflector, watcher},
};

/// User and system time of the process so far, in seconds.
fn cpu() -> f64 {
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    [usage.ru_utime, usage.ru_stime].iter().map(|t| t.tv_sec as f64 + t.tv_usec as f64 / 1e6).sum()
}

fn status_kib(field: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/status").expect("Linux");
    let line = text.lines().find(|line| line.starts_with(field)).expect("a field of /proc/self/status");
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("KiB")
}

struct Meter {
    cpu: f64,
    wall: Instant,
}

impl Meter {
    fn start() -> Self {
        Self { cpu: cpu(), wall: Instant::now() }
    }

    fn report(&self, phase: &str, objects: usize) {
        println!(
            "{{\"phase\":\"{phase}\",\"objects\":{objects},\"cpu_s\":{:.6},\"wall_s\":{:.6},\"rss_kib\":{},\"hwm_kib\":{}}}",
            cpu() - self.cpu,
            self.wall.elapsed().as_secs_f64(),
            status_kib("VmRSS"),
            status_kib("VmHWM")
        );
    }
}

#[tokio::main]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let args: HashMap<&str, &str> = words.chunks(2).filter_map(|pair| Some((pair[0].strip_prefix("--")?, pair.get(1)?.as_str()))).collect();
    let (count, last_rv) = (args["count"].parse::<usize>().unwrap(), args["last-rv"]);
    let strip = args.get("strip") == Some(&"yes");

    let mut config = Config::new(args["server"].parse().expect("a URL"));
    config.accept_invalid_certs = true; // the replay server signs for itself
    let client = Client::try_from(config).expect("a client");
    let watching = match args.get("page") {
        Some(page) => watcher::Config::default().page_size(page.parse().unwrap()),
        None => watcher::Config::default(),
    };
    let (store, writer) = reflector::store::<Pod>();

    Meter::start().report("start", 0);
    let meter = Meter::start();
    let events = watcher(Api::<Pod>::all(client.clone()), watching).default_backoff().map_ok(move |event| {
        if strip { event.modify(|pod| pod.metadata.managed_fields = None) } else { event }
    });
    let mut events = Box::pin(events.reflect(writer));
    while !matches!(events.try_next().await.expect("a list"), Some(watcher::Event::InitDone)) {}
    meter.report("sync", store.len());
    assert_eq!(store.len(), count, "pods in the store");

    // The watch opens on the next poll; the events are asked for a moment later.
    let (begun, beginning) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let meter = Meter::start();
        client.request_text(http::Request::post("/control/go").body(vec![]).unwrap()).await.expect("an answer to /control/go");
        let _ = begun.send(meter);
    });
    let mut seen = 0;
    while let Some(event) = events.next().await {
        if let watcher::Event::Apply(pod) = event.expect("a watch event") {
            seen += 1;
            if pod.resource_version().as_deref() == Some(last_rv) {
                break;
            }
        }
    }
    beginning.await.expect("the beginning of the events").report("events", seen);
    tokio::time::sleep(Duration::from_millis(500)).await;
    unsafe { libc::malloc_trim(0) };
    Meter::start().report("hold", store.len());
}
