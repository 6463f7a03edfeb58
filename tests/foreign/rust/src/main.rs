//! Uses an API server the way Rust programs do and prints what came of it, one line a step, without anything that differs from run to run.
//! foreign CHAPTER NAMESPACE, with KUBECONFIG set. Its output against a real API server is the expectation; see ../test_rust.py.
mod chapters;
mod dynamic;
mod watching;

use kube::{Client, Config};

/// What every chapter gets: a server and an empty namespace.
pub struct World {
    pub client: Client,
    pub namespace: String,
}

impl World {
    pub fn tell(&self, text: impl AsRef<str>) {
        println!("{}", text.as_ref().replace(&self.namespace, "NAMESPACE"));
    }

    /// Tells what an error says: code, reason and text.
    pub fn refused<T>(&self, what: &str, outcome: kube::Result<T>) {
        match outcome {
            Ok(_) => self.tell(format!("{what}: was not refused")),
            Err(kube::Error::Api(status)) => self.tell(format!("{what}: {} {}: {}", status.code, status.reason, status.message)),
            Err(other) => self.tell(format!("{what}: {other}")),
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, chapter, namespace] = arguments.as_slice() else {
        return Err("usage: foreign CHAPTER NAMESPACE".into());
    };
    let world = World { client: Client::try_from(Config::infer().await?)?, namespace: namespace.clone() };
    match chapter.as_str() {
        "typed" => chapters::typed(&world).await?,
        "paging" => chapters::paging(&world).await?,
        "workloads" => chapters::workloads(&world).await?,
        "apply" => chapters::applying(&world).await?,
        "watch" => watching::watching(&world).await?,
        "reflector" => watching::reflecting(&world).await?,
        "dynamic" => dynamic::dynamically(&world).await?,
        "discovery" => dynamic::discovering(&world).await?,
        _ => return Err(format!("no chapter {chapter}").into()),
    }
    Ok(())
}
